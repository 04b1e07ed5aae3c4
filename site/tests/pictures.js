// Takes pictures of the built site and of reports, at three widths, in light and dark: node site/tests/pictures.js [NAME ...]
// They go to build/screenshots as NAME_WIDTH_PALETTE.png; those that docs/images has are replaced there with --docs.
import { spawnSync } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { ROOT, answered, launch, open, planLink as link, serve } from "./browser.js";

const PYTHON = process.env.PYTHON ?? path.join(ROOT, ".venv/bin/python");
const WIDTHS = [1280, 768, 390];
const PALETTES = ["light", "dark"];
const OUT = path.join(ROOT, "build/screenshots");
const FITS = { gpu: "h100", count: "4", model: "llama_3_1_70b" };
const REFUSED = { gpu: "h100", model: "llama_3_1_70b" };
const REPORTS = `
import sys
from pathlib import Path
from sglang_hydra.cli.main import entry
from tests.measure.report.folders import many_servers, write_sweep
shared = ["model=llama_3_1_70b", "gpu=h100", "attention_backend=fa3"]
for name, points in (("report_1", many_servers(1, loads=1)), ("report_300", many_servers(50))):
    entry(["report", str(write_sweep(Path(sys.argv[1]) / name, points, shared))])
`;

/** What is wanted of each picture: its page, what to wait for, and the height that the documentation shows. */
const SHOTS = {
  home: { at: "/index.html", ready: answered, high: 1000 },
  plan_fits: { at: link(FITS), ready: answered, high: 1300 },
  plan_refused: { at: link(REFUSED), ready: answered, high: 1300 },
  plan_compare: { at: link({ gpu: "h200", model: "llama_3_1_70b", more: "tp_size=2" }, FITS, REFUSED), ready: (page) => page.waitForSelector("table.compare"), high: 1300 },
  plan_of_hub_model: {
    at: link({ gpu: "h100", model: "acme/thing-8b", release: "0.5.23" }),
    ready: async (page) => {
      const body = await readFile(path.join(ROOT, "conf/configs/Qwen--Qwen3-8B.json"), "utf8");
      await page.route("https://huggingface.co/**", (route) => route.fulfill({ body, headers: { "Access-Control-Allow-Origin": "*" } }));
      await answered(page);
      await page.click("#hub button");
      await page.waitForSelector("#config-state:has-text('from huggingface.co')");
      await answered(page);
    },
  },
  offline: {
    at: link(FITS),
    ready: async (page) => {
      await answered(page);
      await page.evaluate(() => navigator.serviceWorker.ready);
      await page.waitForTimeout(3000); // what is kept is still being written
      await page.context().setOffline(true);
      await page.reload();
      await answered(page);
    },
  },
  catalog: { at: "/catalog.html", ready: (page) => page.waitForSelector("#shown:has-text('models')"), high: 1000 },
  model: { at: "/fit/qwen3_8b/index.html" },
  pair: { at: "/fit/llama_3_1_70b/h100.html" },
  paste: {
    at: "/paste.html",
    ready: async (page) => {
      await page.fill("#text", "server_args=ServerArgs(model_path='meta-llama/Llama-3.1-70B-Instruct', tp_size=1)\ntorch.OutOfMemoryError: CUDA out of memory.");
      await page.click("button.go");
      await answered(page);
    },
  },
  docs: { at: "/docs/index.html" },
  report_1: { isReport: true },
  report_300: { isReport: true },
};

const words = process.argv.slice(2);
const isForDocs = words.includes("--docs");
const wanted = words.filter((word) => word in SHOTS);
const reports = await mkdtemp(path.join(tmpdir(), "reports-"));
await mkdir(OUT, { recursive: true });
const server = await serve();
const browser = await launch();
for (const [name, { at, ready, high, isReport }] of Object.entries(SHOTS)) {
  if (wanted.length ? !wanted.includes(name) : isForDocs && !high) continue;
  if (isReport && !existsSync(path.join(reports, name))) spawnSync(PYTHON, ["-c", REPORTS, reports], { cwd: ROOT, stdio: "inherit" });
  const { page, close } = await open(browser, server.address, { mayFail: true });
  await page.goto(isReport ? `file://${reports}/${name}/report.html` : at);
  await ready?.(page);
  for (const colorScheme of PALETTES) {
    await page.emulateMedia({ colorScheme });
    if (name === "docs") {
      await page.evaluate(() => localStorage.clear()); // the theme looks once which colours are wanted
      await page.reload();
    }
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 });
      await page.screenshot({ path: path.join(OUT, `${name}_${width}_${colorScheme}.png`), fullPage: true });
    }
  }
  const image = path.join(ROOT, "docs/images", `page_${name}.png`);
  if (isForDocs && high && existsSync(image)) {
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 1280, height: high });
    await page.screenshot({ path: path.join(OUT, path.basename(image)) });
    await copyFile(path.join(OUT, path.basename(image)), image);
    spawnSync(PYTHON, ["-c", "import sys; from PIL import Image; f = sys.argv[1]; Image.open(f).convert('RGB').quantize(128).save(f, optimize=True)", image], { stdio: "inherit" });
  }
  console.log(name);
  await close();
}
await browser.close();
server.close();
