// The catalog and its static pages, in Chromium.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { SITE, answered } from "./browser.js";
import { onSite } from "./on_site.js";

onSite("the matrix is filtered and sorted", async (page) => {
  await page.goto("/catalog.html");
  await page.waitForSelector("#shown:has-text('models')");
  await page.fill("#filter", "llama_3_1");
  const shown = await page.locator("#matrix tbody tr:visible th").allTextContents();
  assert.ok(shown.includes("llama_3_1_70b") && shown.every((name) => name.includes("llama_3_1")), String(shown));
  await page.fill("#gpu-filter", "h100");
  assert.deepEqual(await page.locator("#matrix thead th:visible").allTextContents(), ["model", "h100", "h100_pcie"]);
  await page.click("button[data-sort=h100]");
  const numbers = await page.locator("#matrix tbody tr:visible td:nth-of-type(13)").evaluateAll((cells) => cells.map((cell) => Number.parseInt(cell.dataset.many, 10) || Infinity));
  assert.deepEqual(numbers, [...numbers].sort((a, b) => a - b));
});

onSite("names are found as people write them, the address keeps the filters, and nothing left offers a reset", async (page) => {
  const shown = (selector) => page.locator(selector).allTextContents();
  await page.goto("/catalog.html");
  await page.waitForSelector("#shown:has-text('models')");
  for (const [typed, name] of [["llama-3.1-70b", "llama_3_1_70b"], ["gpt-oss", "gpt_oss_120b"], ["meta-llama/Llama-3.1-70B-Instruct", "llama_3_1_70b"], ["Qwen 3 8B", "qwen3_8b"]]) {
    await page.fill("#filter", typed);
    assert.ok((await shown("#matrix tbody tr:visible th")).includes(name), typed);
  }
  for (const [typed, names] of [["RTX 4090", ["rtx_4090"]], ["H100 SXM 80 GB", ["h100"]], ["mi300x", ["mi300x"]], ["amd", ["mi300x", "mi325x", "mi355x"]]]) {
    await page.fill("#gpu-filter", typed);
    for (const name of names) assert.ok((await shown("#matrix thead th:visible")).includes(name), typed);
    assert.ok((await shown("#matrix thead th:visible")).length <= names.length + 2, typed);
  }
  await page.selectOption("#load", "longest");
  assert.match(page.url(), /\?load=longest&filter=Qwen\+3\+8B&gpu-filter=amd$/);
  await page.reload();
  assert.equal(await page.inputValue("#filter"), "Qwen 3 8B");
  assert.match(await page.getAttribute("#matrix tr:has(a[href='fit/qwen3_8b/index.html']) a[href$='mi300x.html']", "aria-label"), /one request of the longest: 1/);
  await page.fill("#filter", "nothing of that name");
  await page.click("#reset");
  await page.waitForFunction(() => document.querySelectorAll("#matrix tbody tr:not([hidden])").length > 50);
  assert.equal(new URL(page.url()).search, "");
});

onSite("a static page has its verdict in the HTML, and the planner agrees", async (page) => {
  const html = await readFile(path.join(SITE, "fit/llama_3_1_70b/h100.html"), "utf8");
  assert.match(html, /<title>meta-llama\/Llama-3.1-70B-Instruct on h100: 4 GPUs hold 32 requests of 8,192 tokens<\/title>/);
  assert.match(html, /<meta name="description" content="meta-llama\/Llama-3.1-70B-Instruct on h100: 4 GPUs hold 32 requests/);
  assert.match(html, /Data of 2\d{3}-\d\d-\d\d\. Model: .*<a href="https:\/\/github\.com\/ai-dynamo\/aiconfigurator/);
  await page.goto("/fit/llama_3_1_70b/h100.html");
  await page.click("text=Change this plan");
  await answered(page);
  assert.equal(await page.textContent("#verdict"), "Can be launched: SGLang 0.5.23");
  assert.equal(await page.inputValue("#count"), "4");
});

test("every cell of the matrix leads to a page", async () => {
  const html = await readFile(path.join(SITE, "catalog.html"), "utf8");
  const links = [...html.matchAll(/href="(fit\/[^"]+)"/g)].map((match) => match[1]);
  assert.ok(links.length > 1000);
  for (const link of links) assert.match(await readFile(path.join(SITE, link), "utf8"), /<title>[^<]+<\/title>/, link);
});
