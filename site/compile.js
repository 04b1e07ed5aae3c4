// Compiles the planner's Python with Pyodide, for build.py: node site/compile.js FOLDER. Prints the modules that the
// questions in FOLDER/questions.json import.
import { readFile } from "node:fs/promises";
import { loadPyodide } from "pyodide";

const [folder] = process.argv.slice(2);
const python = await loadPyodide({ env: { HOME: "/home/pyodide", PYTHONHASHSEED: "0", HF_HUB_OFFLINE: "1", SGLANG_HYDRA_OFFLINE: "1" } });
for (const name of ["/", "/home", "/home/pyodide"]) python.FS.chmod(name, 0o755); // as in the worker
python.FS.mkdirTree("/build");
python.mountNodeFS("/build", folder);
python.runPython(await readFile(new URL("compiling.py", import.meta.url), "utf8"));
console.log(python.runPython('prepare("/build", "/lib/python313.zip", "/lib/python3.13/site-packages")'));
