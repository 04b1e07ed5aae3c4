// Asks the worker that runs Python.

/** @typedef {{resolve: (value: string) => void, reject: (reason: Error) => void}} Waiting */
/** @typedef {{ready?: boolean, failure?: string, loaded?: number, kept?: boolean, slow?: boolean, release?: {loaded: number, total: number}}} State */
/** @typedef {State & {id?: number, answer?: string, dead?: boolean}} Message */

/** @type {Worker | null} */
let worker = null;
/** @type {Map<number, Waiting>} */
const waiting = new Map();
/** @type {((state: State) => void)[]} */
const listeners = [];
let last = 0;
let watch = 0;
/** Without a byte for so long, the page says that it waits. */
const QUIET_MS = 8_000;

/** What is not there: the page says what to do then. */
export class LoadFailure extends Error {}

/** Whether this browser can run Python at all. */
export function canRun() {
  return typeof WebAssembly === "object" && typeof Worker === "function";
}

/** Calls `listener` with what becomes of the load: bytes, that none come, that it is ready, that it failed. @param {(state: State) => void} listener */
export function onState(listener) {
  listeners.push(listener);
}

/** @param {State} state */
function tell(state) {
  for (const listener of listeners) listener(state);
}

/** Loads Python, once. @returns {Worker | null} */
export function start() {
  if (worker) return worker;
  try {
    worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  } catch (why) {
    end(`this browser may not start assets/worker.js (${/** @type {Error} */ (why).message})`);
    return null;
  }
  worker.addEventListener("message", ({ data }) => settle(data));
  worker.addEventListener("error", (event) => end(event.message || "assets/worker.js did not come, or may not run here"));
  wait();
  return worker;
}

/** Says that nothing comes, unless something comes. */
function wait() {
  clearTimeout(watch);
  watch = setTimeout(() => tell({ slow: true }), QUIET_MS);
}

/** Ends Python that was not loaded; the next question loads it anew. @param {string} failure */
function end(failure) {
  clearTimeout(watch);
  stop(new LoadFailure(failure));
  tell({ ready: false, failure });
}

/** @param {Error} reason */
function stop(reason) {
  worker?.terminate();
  worker = null;
  for (const { reject } of waiting.values()) reject(reason);
  waiting.clear();
}

/** @param {Message} data */
function settle(data) {
  if (data.ready === false) return end(data.failure ?? "");
  if (data.ready || data.loaded !== undefined) {
    if (data.ready) clearTimeout(watch);
    else wait();
    tell(data);
  }
  if (data.release) tell(data);
  if (data.dead) return stop(new Error("Python ran out of memory, and starts again with the next plan."));
  const caller = data.id === undefined ? undefined : waiting.get(data.id);
  if (!caller || data.id === undefined) return undefined;
  waiting.delete(data.id);
  if (data.answer === undefined) caller.reject(new Error(data.failure));
  else caller.resolve(data.answer);
  return undefined;
}

const WHOLE_NUMBER = /"(?:[^"\\]|\\.)*"|(?<![\w.+-])-?\d{16,}(?![\d.eE])/g;

/**
 * Reads JSON with every whole number as it is written: one that a number cannot hold becomes a BigInt.
 * @param {string} text @returns {unknown}
 */
export function parseJson(text) {
  const marked = text.replace(WHOLE_NUMBER, (word) => (word[0] === '"' || Number.isSafeInteger(Number(word)) ? word : `{"$int":"${word}"}`));
  if (marked === text) return JSON.parse(text);
  return JSON.parse(marked, (_, value) => (typeof value?.$int === "string" ? BigInt(value.$int) : value));
}

/**
 * Asks sglang_hydra.cli.answers.answer, and returns its text. Rejects with the last line of what Python raised.
 * @param {Record<string, unknown>} question
 * @param {boolean} [exact] whether a release's own code may be fetched and asked for what is not recorded
 * @returns {Promise<string>}
 */
export function askText(question, exact = question.ask !== "paste") {
  const id = ++last;
  return new Promise((resolve, reject) => {
    const asked = start();
    if (!asked) return reject(new LoadFailure("this browser may not start a worker"));
    waiting.set(id, { resolve, reject });
    return asked.postMessage({ id, question: JSON.stringify(question), exact });
  });
}

/** @template T @param {Record<string, unknown>} question @returns {Promise<T>} */
export async function ask(question) {
  return /** @type {T} */ (parseJson(await askText(question)));
}
