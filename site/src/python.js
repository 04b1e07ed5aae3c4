// Asks the worker that runs Python.

/** @typedef {{resolve: (value: any) => void, reject: (reason: Error) => void}} Waiting */

/** @type {Worker | null} */
let worker = null;
/** @type {Map<number, Waiting>} */
const waiting = new Map();
let last = 0;

/** Whether this browser can run Python at all. */
export function canRun() {
  return typeof WebAssembly === "object" && typeof Worker === "function";
}

/**
 * Loads Python, once; `onState` is called when it is ready, or with the reason why it is not.
 * @param {(state: {ready: boolean, failure?: string}) => void} [onState]
 */
export function start(onState) {
  if (!worker) {
    worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    worker.addEventListener("message", ({ data }) => settle(data));
    worker.addEventListener("error", (event) => onState?.({ ready: false, failure: event.message }));
  }
  if (onState) {
    worker.addEventListener("message", ({ data }) => {
      if ("ready" in data) onState(data);
    });
  }
  return worker;
}

/** @param {{id?: number, answer?: string, failure?: string, dead?: boolean}} data */
function settle(data) {
  if (data.dead) {
    worker?.terminate();
    worker = null;
    for (const { reject } of waiting.values()) reject(new Error("Python ran out of room for it, and starts again with the next plan."));
    waiting.clear();
  }
  const caller = data.id === undefined ? undefined : waiting.get(data.id);
  if (!caller || data.id === undefined) return;
  waiting.delete(data.id);
  if (data.answer === undefined) caller.reject(new Error(data.failure));
  else caller.resolve(JSON.parse(data.answer));
}

/**
 * Asks sglang_hydra.cli.answers.answer. Rejects with the last line of what Python raised.
 * @param {Record<string, any>} question
 * @returns {Promise<any>}
 */
export function ask(question) {
  const id = ++last;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    start().postMessage({ id, question: JSON.stringify(question) });
  });
}
