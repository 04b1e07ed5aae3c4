// The CPU time of a first plan and of a change, without a browser: node site/tests/cpu.js, after make site.
import assert from "node:assert/strict";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { gunzipSync } from "node:zlib";
import { loadPyodide } from "pyodide";
import { unpack } from "../src/release.js";
import { SITE } from "./browser.js";

const { FILES } = await import(path.join(SITE, "assets/build.js"));
const content = async (name) => gunzipSync(await readFile(path.join(SITE, FILES[name])));
const seconds = () => process.cpuUsage().user / 1e6 + process.cpuUsage().system / 1e6;
const question = (count) => JSON.stringify({ ask: "plan", form: { gpu: "h100", model: "llama_3_1_70b", count } });

const begun = seconds();
const stdLibURL = path.join(await mkdtemp(path.join(tmpdir(), "cpu-")), "stdlib.zip");
await writeFile(stdLibURL, await content("stdlib.zip"));
const python = await loadPyodide({ stdLibURL, env: { HOME: "/home/pyodide", HF_HUB_OFFLINE: "1", SGLANG_HYDRA_OFFLINE: "1" } });
for (const folder of ["/", "/home", "/home/pyodide"]) python.FS.chmod(folder, 0o755);
unpack(python.FS, "", await content("packages"));
const loaded = seconds();
python.runPython("from page_late import install\ninstall")((name) => assert.fail(`a first plan needs ${name}`));
const answer = python.runPython("from sglang_hydra.cli.answers import answer\nanswer");
answer(question("4"));
const first = seconds();
for (const count of ["1", "2", "8", "1", "2", "8"]) answer(question(count));
console.log(`Pyodide ${(loaded - begun).toFixed(1)} s, first plan ${(first - begun).toFixed(1)} s in all, a change ${(((seconds() - first) / 6) * 1000).toFixed(0)} ms of CPU`);
