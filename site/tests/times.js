// How long a plan takes in Chromium beside a native `plan`, in one run: node site/tests/times.js
import { spawnSync } from "node:child_process";
import path from "node:path";
import { ROOT, launch, open, answered, serve } from "./browser.js";

const PYTHON = process.env.PYTHON ?? path.join(ROOT, ".venv/bin/python");
const WORDS = ["gpu=h100", "model=llama_3_1_70b"];
const RUNS = 3;

const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
async function timed(work) {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

const server = await serve();
const link = `${server.address}/plan.html#${new URLSearchParams({ p: JSON.stringify({ gpu: "h100", model: "llama_3_1_70b" }) })}`;
const times = { native: [], cold: [], warm: [], changed: [] };
for (let run = 0; run < RUNS; run++) {
  times.native.push(await timed(() => spawnSync(PYTHON, ["-m", "sglang_hydra", "plan", ...WORDS], { cwd: ROOT })));
  const browser = await launch();
  const { page } = await open(browser, server.address);
  times.cold.push(await timed(() => page.goto(link).then(() => answered(page))));
  await page.goto("about:blank");
  times.warm.push(await timed(() => page.goto(link).then(() => answered(page))));
  for (const count of ["2", "4", "8"]) {
    await page.fill("#count", count);
    times.changed.push(await timed(() => page.click("button.go").then(() => answered(page))));
  }
  await browser.close();
}
server.close();
const native = median(times.native);
for (const [name, numbers] of Object.entries(times)) {
  const own = median(numbers);
  console.log(`${name}: ${own.toFixed(0)} ms, ${(own / native).toFixed(2)} times a native plan`);
}
