// Runs the Python package in a worker: each message is a question in JSON, answered in order. It says what it loads, and
// names what does not come.

const PACKAGES = "/lib/python3.13/site-packages";
const base = new URL("..", import.meta.url).href;
const plain = self.fetch.bind(self);
let loaded = 0;
let failed = "";

/** Says once what does not come, so that the page need not wait for what Pyodide makes of it. @param {string} what */
function fail(what) {
  failed ||= what;
  postMessage({ ready: false, failure: failed });
  return new Error(failed);
}

/** As fetch, but the page hears of the bytes that come, and of a file that comes in part or not at all. @type {typeof fetch} */
async function watched(input, init) {
  const url = String(input instanceof Request ? input.url : input);
  const name = url.startsWith(base) ? url.slice(base.length) : url;
  const response = await plain(input, init).catch((why) => {
    throw fail(`${name} did not come (${why.message})`);
  });
  if (!response.ok) throw fail(`${name}: HTTP ${response.status}`);
  const reader = response.body?.getReader();
  if (!reader) return response;
  const body = new ReadableStream({
    async pull(stream) {
      try {
        const { done, value } = await reader.read();
        if (done) return stream.close();
        loaded += value.length;
        postMessage({ loaded });
        return stream.enqueue(value);
      } catch (why) {
        return stream.error(fail(`${name} came in part (${/** @type {Error} */ (why).message})`));
      }
    },
  });
  return new Response(body, { status: response.status, headers: response.headers });
}
self.fetch = watched;

/** @returns {Promise<(question: string) => string>} */
async function start() {
  postMessage({ loaded });
  const packages = fetch(`${base}python/packages.zip`).then((response) => response.arrayBuffer());
  const own = plain(`${base}own.json`).then((response) => (response.ok ? response.json() : {}), () => ({}));
  packages.catch(() => {}); // it is awaited below, after Python
  // @ts-ignore the build puts Pyodide there
  const { loadPyodide } = await import("../pyodide/pyodide.mjs").catch(() => {
    throw fail("pyodide/pyodide.mjs did not come");
  });
  const python = await loadPyodide({
    indexURL: `${base}pyodide/`,
    stdLibURL: `${base}python/stdlib.zip`,
    lockFileURL: `${base}python/lock.json`,
    env: { HOME: "/home/pyodide", HF_HUB_OFFLINE: "1", SGLANG_HYDRA_OFFLINE: "1" },
  });
  for (const folder of ["/", "/home", "/home/pyodide"]) python.FS.chmod(folder, 0o755); // a cache that others can write is not used
  python.unpackArchive(await packages, "zip", { extractDir: PACKAGES });
  for (const [name, content] of Object.entries(await own)) {
    const file = `/home/pyodide/${name}`;
    python.FS.mkdirTree(file.slice(0, file.lastIndexOf("/")));
    python.FS.writeFile(file, content);
  }
  return python.runPython("from sglang_hydra.cli.answers import answer\nanswer");
}

const started = start();
started.then(
  () => postMessage({ ready: true }),
  (why) => fail(String(why)),
);
addEventListener("message", async ({ data }) => {
  const answer = await started.catch(() => null);
  if (!answer) return postMessage({ id: data.id, failure: failed });
  try {
    return postMessage({ id: data.id, answer: answer(data.question) });
  } catch (failure) {
    const lines = String(failure).trim().split("\n");
    // What Python itself did not raise ends it: text that nests beyond the engine's stack.
    const dead = !(failure instanceof Error && failure.name === "PythonError");
    return postMessage({ id: data.id, failure: lines[lines.length - 1], dead });
  }
});
