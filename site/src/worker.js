// Runs the Python package in a worker: each message is a question in JSON, answered in order. It says what it loads, and
// names what does not come. A release whose own code a plan needs is asked in a Python beside it (release.js).
import { BUILD, FILES } from "./build.js";
import { older, releases, unpack } from "./release.js";

const PACKAGES = "/lib/python3.13/site-packages";
const base = new URL("..", import.meta.url).href;
const plain = self.fetch.bind(self);
/** Under which Pyodide asks for its parts. */
const TYPES = { "pyodide.asm.wasm": "application/wasm", "stdlib.zip": "application/zip" };
const GLUE = "pyodide.asm.js";
const FIRST = [...Object.keys(TYPES), GLUE, "packages"];
let loaded = 0;
let failed = "";

/** Says once what does not come, so that the page need not wait for what Pyodide makes of it. @param {string} what */
function fail(what) {
  failed ||= what;
  postMessage({ ready: false, failure: failed });
  return new Error(failed);
}

/** Whether this host lets a browser keep its files: sglang-hydra ui does not. */
const own = plain(`${base}own.json`).catch(() => new Response("{}", { status: 503 }));
const mayKeep = own.then((response) => response.ok && "caches" in self && !/no-store/.test(response.headers.get("Cache-Control") ?? ""));

/** Keeps a file for visits without a network (sw.js). @param {string} address @param {Response} response */
async function keep(address, response) {
  if (await mayKeep) await (await caches.open(BUILD)).put(address, response);
}

/** One of the site's files, which the build compressed. Throws what of it did not come. @param {string} name @param {(bytes: number) => void} tell */
async function packed(name, tell) {
  const response = await plain(`${base}${name}`).catch((why) => {
    throw new Error(`${name} did not come (${why.message})`);
  });
  if (!response.ok || !response.body) throw new Error(`${name}: HTTP ${response.status}`);
  keep(response.url, response.clone()).catch(() => {}); // without room, there is nothing offline
  const count = new TransformStream({
    transform(bytes, stream) {
      tell(bytes.length);
      stream.enqueue(bytes);
    },
  });
  const content = response.body.pipeThrough(count).pipeThrough(/** @type {TransformStream<Uint8Array, Uint8Array>} */ (new DecompressionStream("gzip")));
  return new Response(content).arrayBuffer().catch((why) => {
    throw new Error(`${name} came in part (${why.message})`);
  });
}

/** @type {Map<string, Promise<ArrayBuffer>>} */
const kept = new Map();
/** As packed, once for all Pythons. @param {string} name */
function first(name) {
  const found = kept.get(name) ?? packed(FILES[name], (bytes) => postMessage({ loaded: (loaded += bytes) })).catch((why) => {
    throw fail(why.message);
  });
  kept.set(name, found);
  return found;
}

/** What Python waits for, in one step (python/page_late.py). @param {string} part */
function late(part) {
  const request = new XMLHttpRequest();
  request.open("GET", `${base}${FILES[part]}`, false);
  request.responseType = "arraybuffer";
  request.send();
  if (request.status !== 200) throw new Error(`HTTP ${request.status}`);
  keep(request.responseURL, new Response(request.response)).catch(() => {});
  return new Uint8Array(request.response);
}

// Pyodide fetches its parts by their own names.
self.fetch = async (input, init) => {
  const url = String(input instanceof Request ? input.url : input);
  const name = /** @type {keyof TYPES} */ (url.replace(`${base}python/`, ""));
  return name in TYPES ? new Response(await first(name), { headers: { "Content-Type": TYPES[name] } }) : plain(input, init);
};

/** Pyodide's own program, which it finds by its global name. @type {Promise<unknown> | null} */
let glue = null;
const loadGlue = async () => import(URL.createObjectURL(new Blob([await first(GLUE)], { type: "text/javascript" })));

async function newPython() {
  /** @type {typeof import("pyodide")} */
  const { loadPyodide } = await import(`${base}python/pyodide.mjs`).catch(() => {
    throw fail("python/pyodide.mjs did not come");
  });
  await (glue ??= loadGlue());
  return loadPyodide({
    indexURL: `${base}python/`,
    stdLibURL: `${base}python/stdlib.zip`,
    lockFileURL: `${base}python/lock.json`,
    env: { HOME: "/home/pyodide", HF_HUB_OFFLINE: "1", SGLANG_HYDRA_OFFLINE: "1" },
  });
}

/** @typedef {Record<string, [size: number, newer: string | null]>} Index of the wheels that the site has */

/** @returns {Promise<Index>} */
const wheels = () => plain(`${base}releases/index.json`).then((response) => (response.ok ? response.json() : {}), () => ({}));

/**
 * One wheel of a release, by way of the newer ones that it is made of. The page hears how much of all that were asked
 * for has come.
 * @param {string} folder @param {Index} index @returns {Promise<Uint8Array>}
 */
async function fetchWheel(folder, index) {
  const [size, newer] = index[folder];
  coming.total += size;
  const own = packed(`releases/${folder}.bin`, (bytes) => {
    coming.loaded += bytes;
    postMessage({ release: { ...coming } });
  });
  const [came, base] = await Promise.all([own, newer && fetchWheel(newer, index)]);
  return base ? older(base, new Uint8Array(came)) : new Uint8Array(came);
}
const coming = { loaded: 0, total: 0 };

async function start() {
  postMessage({ loaded });
  const index = wheels();
  for (const name of FIRST) first(name).catch(() => {}); // each is awaited below
  const python = await newPython();
  for (const folder of ["/", "/home", "/home/pyodide"]) python.FS.chmod(folder, 0o755); // a cache that others can write is not used
  unpack(python.FS, "", new Uint8Array(await first("packages")));
  python.runPython("from page_late import install\ninstall")(late);
  for (const [name, content] of Object.entries(await own.then((response) => (response.ok ? response.json() : {})))) {
    const file = `/home/pyodide/${name}`;
    python.FS.mkdirTree(file.slice(0, file.lastIndexOf("/")));
    python.FS.writeFile(file, content);
  }
  const known = await index;
  const asked = releases(python, newPython, (folder) => fetchWheel(folder, known), () => packed(FILES.library, () => {}), PACKAGES);
  python.runPython("from page_release import install\ninstall")(asked.page, Object.keys(known));
  return { answer: python.runPython("from sglang_hydra.cli.answers import answer\nanswer"), asked };
}

/** Whose values are the release's own. Remedies of such a plan start no release: they are recorded, or estimates. */
const KNOWN = ["exact", "recorded"];

/** Answers, and starts each release that the answer needs on the way. @param {string} question @param {boolean} exact whether releases may be asked */
async function answered(question, exact) {
  const { answer, asked } = await started;
  asked.begin(false);
  const recorded = answer(question);
  const basis = JSON.parse(recorded).plan?.basis;
  if (!exact || !basis || KNOWN.includes(basis)) return recorded;
  asked.begin(true);
  for (;;) {
    let made = "";
    try {
      made = answer(question);
    } catch (why) {
      if (!asked.isWanted()) throw why;
    }
    if (!(await asked.start())) return made;
  }
}

const started = start();
started.then(
  async () => postMessage({ ready: true, kept: await mayKeep }),
  (why) => fail(String(why)),
);
/** One question at a time: another could take the release that this one waits for. */
let turn = Promise.resolve();
addEventListener("message", ({ data }) => (turn = turn.then(() => reply(data))));

/** @param {{id: number, question: string, exact: boolean}} data */
async function reply(data) {
  if (!(await started.catch(() => null))) return postMessage({ id: data.id, failure: failed });
  try {
    return postMessage({ id: data.id, answer: await answered(data.question, data.exact) });
  } catch (failure) {
    const lines = String(failure).trim().split("\n");
    // What Python itself did not raise ends it: text that nests beyond the engine's stack.
    const dead = !(failure instanceof Error && failure.name === "PythonError");
    return postMessage({ id: data.id, failure: lines[lines.length - 1], dead });
  }
}
