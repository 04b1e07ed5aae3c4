// sglang-hydra ui: the same site from this machine, with presets of the user.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, mkdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { ROOT, launch, open, answered } from "./browser.js";

const PYTHON = process.env.PYTHON ?? path.join(ROOT, ".venv/bin/python");

test("ui plans an experiment of the user on a GPU that only the user knows", async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "presets-"));
  await mkdir(path.join(folder, "gpu"));
  await writeFile(path.join(folder, "gpu/my_own.yaml"), "defaults: [h100]\nname: my_own\nmemory_mib: 163840\n");
  await mkdir(path.join(folder, "experiment"));
  await writeFile(path.join(folder, "experiment/mine.yaml"), "gpu: my_own\nmodel: llama_3_1_70b\ncontext_length: 16384\n");
  const words = ["-m", "sglang_hydra", "ui", path.join(folder, "experiment/mine.yaml"), "tp_size=2"];
  const started = spawn(PYTHON, words, { cwd: ROOT, env: { ...process.env, BROWSER: "true", PYTHONUNBUFFERED: "1" } });
  const browser = await launch();
  try {
    let output = "";
    for await (const part of started.stdout) {
      output += part;
      if (output.includes("Ctrl-C")) break;
    }
    const address = output.match(/http:\/\/127\.0\.0\.1:\d+\/\S+/)[0];
    const { page, wrong, close } = await open(browser, new URL(address).origin);
    await page.goto(address);
    await answered(page);
    assert.match(await page.textContent("#answer"), /2 of 8 x my_own, 163840 MiB each/);
    assert.match(await page.textContent("#values"), /context_length.*16384/s);
    assert.equal(await page.inputValue("#more"), "mine.yaml");
    assert.equal(await page.inputValue("#count"), "2");
    await page.waitForSelector("#gpus option[value=my_own]", { state: "attached" });
    assert.deepEqual(wrong, []);
    await close();
  } finally {
    await browser.close();
    started.kill("SIGINT");
  }
  const code = await new Promise((resolve) => started.on("exit", resolve));
  assert.equal(code, 130);
});
