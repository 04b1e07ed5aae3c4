// The report of a sweep, in a file without a server: marks say their numbers, servers are hidden, the table is sorted and
// filtered.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { ROOT, launch, open, violations } from "./browser.js";

const PYTHON = process.env.PYTHON ?? path.join(ROOT, ".venv/bin/python");
const WRITE = `
import sys
from pathlib import Path
from sglang_hydra.cli.main import entry
from tests.measure.report.folders import three_servers, write_sweep
old = write_sweep(Path(sys.argv[1]) / "old", three_servers(1.12))
new = write_sweep(Path(sys.argv[1]) / "sweep", three_servers())
again = write_sweep(Path(sys.argv[1]) / "again", three_servers())
entry(["report", str(new)])
sys.exit(entry(["report", str(again), "--base", str(old), "--slo", "ttft=300ms,itl=15ms"]))
`;
const folder = await mkdtemp(path.join(tmpdir(), "report-"));
const written = spawnSync(PYTHON, ["-c", WRITE, folder], { cwd: ROOT, encoding: "utf8" });

/** Opens the report of a sweep; what the browser complains of, the page's own policy included, fails the test. */
async function report(sweep, options, check) {
  assert.equal(written.status, 0, written.stderr);
  const browser = await launch();
  try {
    const { page, wrong, close } = await open(browser, "file://", options);
    await page.goto(`file://${folder}/${sweep}/report.html`);
    await check(page);
    assert.deepEqual(wrong, []);
    await close();
  } finally {
    await browser.close();
  }
}

test("the table of points is sorted and filtered", () =>
  report("sweep", { viewport: { width: 1400, height: 1500 } }, async (page) => {
    const column = async (number) => (await page.locator(`#points tbody tr:visible td:nth-child(${number})`).allTextContents());
    const titles = await page.locator("#points thead th").allTextContents();
    const throughput = titles.indexOf("per GPU") + 1;
    await page.click(`#points thead th:nth-child(${throughput})`);
    const numbers = (await column(throughput)).map((cell) => parseFloat(cell.replace(",", "")));
    assert.equal(numbers.length, 18);
    assert.deepEqual(numbers, [...numbers].sort((a, b) => a - b));
    await page.click(`#points thead th:nth-child(${throughput})`);
    assert.deepEqual((await column(throughput)).map((cell) => parseFloat(cell.replace(",", ""))), [...numbers].reverse());
    await page.fill("#filter", "median ttft");
    assert.ok((await column(1)).length < 18);
    assert.ok((await column(1)).length > 0);
  }));

for (const colorScheme of ["light", "dark"]) {
  test(`${colorScheme}: no serious violation of what axe-core checks`, () =>
    report("again", { viewport: { width: 390, height: 900 }, colorScheme }, async (page) => assert.deepEqual(await violations(page), [])));
}

test("a mark says its numbers, by pointer and by keyboard", () =>
  report("sweep", { viewport: { width: 1400, height: 1500 } }, async (page) => {
    assert.ok(await page.locator("#tip").isHidden());
    await page.locator(".even svg .mark[data-p]").last().hover();
    const words = await page.locator("#tip").textContent();
    for (const part of ["tp_size=", "concurrency ", "output tokens/s per GPU: ", "median TTFT: ", "3 repeats"]) assert.ok(words.includes(part), words);
    assert.equal(await page.locator("#points tr.hot").count(), 1, "its row is marked");
    await page.keyboard.press("Escape");
    assert.ok(await page.locator("#tip").isHidden());
    await page.locator(".even svg .mark[tabindex]").first().focus();
    assert.ok(await page.locator("#tip").isVisible());
  }));

test("a click in the legend hides a server, a check box the noise, another one makes the axes logarithmic", () =>
  report("sweep", { viewport: { width: 1400, height: 1500 } }, async (page) => {
    const lines = () => page.locator("polyline.server:visible").count();
    assert.equal(await lines(), 9);
    await page.click(".legend button >> nth=0");
    assert.equal(await lines(), 6);
    assert.equal(await page.locator("#points tbody tr:visible").count(), 12);
    await page.uncheck("#noise");
    assert.equal(await page.locator(".noise:visible").count(), 0);
    await page.check("#log");
    assert.ok(await page.locator(".log svg").first().isVisible());
    assert.ok(await page.locator(".even svg").first().isHidden());
    await page.click(".legend button >> nth=0");
    assert.equal(await lines(), 9);
  }));

test("two sweeps lie over each other, dark and on a phone", () =>
  report("again", { viewport: { width: 400, height: 2600 }, colorScheme: "dark" }, async (page) => {
    assert.equal(await page.locator("polyline.server.old:visible").count(), 9);
    assert.equal(await page.locator(".beyond:visible").count(), 3);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "it does not scroll sideways");
    await page.locator(".even svg .mark[data-p]").last().hover();
    const box = await page.locator("#tip").boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= 400);
  }));
