// Runs the Python package in a worker: each message is a question in JSON, answered in order.
// @ts-ignore the build puts Pyodide there
import { loadPyodide } from "../pyodide/pyodide.mjs";

const PACKAGES = "/lib/python3.13/site-packages";

/** @returns {Promise<(question: string) => string>} */
async function start() {
  const base = new URL("..", import.meta.url).href;
  const packages = fetch(`${base}python/packages.zip`).then((response) => {
    if (!response.ok) throw new Error(`${response.url}: ${response.status}`);
    return response.arrayBuffer();
  });
  const own = fetch(`${base}own.json`).then((response) => (response.ok ? response.json() : {}));
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
  (failure) => postMessage({ ready: false, failure: String(failure) }),
);
addEventListener("message", async ({ data }) => {
  try {
    const answer = (await started)(data.question);
    postMessage({ id: data.id, answer });
  } catch (failure) {
    const lines = String(failure).trim().split("\n");
    // What Python itself did not raise ends it: text that nests beyond the engine's stack.
    const dead = !(failure instanceof Error && failure.name === "PythonError");
    postMessage({ id: data.id, failure: lines[lines.length - 1], dead });
  }
});
