// Every kind of page in Chromium: no error, nothing from another host, and small enough.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { brotliCompressSync, constants } from "node:zlib";
import { SITE, answered } from "./browser.js";
import { onSite } from "./on_site.js";

/** What a host sends that compresses. @param {Buffer} content */
const brotli = (content) => brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_QUALITY]: 9, [constants.BROTLI_PARAM_LGWIN]: 24 } });

onSite("home shows a plan that fits before Python is there, and plans", async (page) => {
  assert.match(await readFile(path.join(SITE, "index.html"), "utf8"), /Can be launched: SGLang 0\.5\.2/);
  await page.goto("/index.html");
  await answered(page);
  assert.equal(await page.textContent("#verdict"), "Can be launched: SGLang 0.5.23");
  await page.fill("#count", "1");
  await page.click("button.go");
  await answered(page);
  assert.equal(await page.textContent("#verdict"), "Cannot be launched: SGLang 0.5.23");
  await page.click(".chip >> nth=1");
  await page.waitForSelector("#room:has-text('l4')");
  assert.equal(await page.inputValue("#model"), "qwen3_8b");
});

onSite("other pages and the documentation load without an error", async (page) => {
  const names = ["catalog.html", "fit/qwen3_8b/index.html", "fit/qwen3_8b/l4.html", "docs/index.html", "docs/reference/rules.html"];
  for (const name of names) {
    const response = await page.goto(`/${name}`);
    assert.equal(response.status(), 200, name);
    await page.waitForLoadState("networkidle");
  }
});

onSite("the documentation is searched without a server's help", async (page) => {
  await page.goto("/docs/index.html?q=mem_fraction_static"); // what is typed before the theme listens is lost
  await page.waitForSelector(".md-search-result__item a");
});

for (const [name, most, ready, sent] of [
  ["plan.html", 8e6, answered, (content) => content],
  ["catalog.html", 300e3, (page) => page.waitForSelector("#shown:has-text('models')"), brotli],
]) {
  onSite(`what ${name} downloads is small, ${sent === brotli ? "where the host compresses" : "from a host that compresses nothing"}`, async (page) => {
    const loaded = new Set();
    page.on("response", (response) => {
      const address = new URL(response.url());
      if (address.protocol !== "blob:") loaded.add(address.pathname); // made on the page of what it has fetched
    });
    await page.goto(`/${name}`);
    await ready(page);
    let size = 0;
    for (const file of loaded) size += sent(await readFile(path.join(SITE, file))).length;
    console.log(`# ${name}: ${loaded.size} files, ${(size / 1e6).toFixed(2)} MB`);
    assert.ok(loaded.size >= 4 && size < most, `${size} bytes`);
  });
}

test("no page of the site or of its documentation loads anything from another host", async () => {
  const names = (await readdir(SITE, { recursive: true })).filter((name) => name.endsWith(".html"));
  assert.ok(names.length > 2000);
  const loads = /<(?:script|img|iframe|link(?=[^>]*stylesheet))[^>]*(?:src|href)=["']?(https?:)?\/\//;
  const own = (await readFile(path.join(SITE, "index.html"), "utf8")).match(/rel="canonical" href="([^"]+)"/)?.[1] ?? "/";
  for (const name of names) assert.doesNotMatch((await readFile(path.join(SITE, name), "utf8")).replaceAll(own, "/"), loads, name);
});
