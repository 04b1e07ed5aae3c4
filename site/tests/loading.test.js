// What does not load is named within ten seconds, with what to do; what was shown of other input goes.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { answered, launch, open, serve } from "./browser.js";

let server, browser;
before(async () => {
  server = await serve();
  browser = await launch();
});
after(async () => {
  await browser.close();
  server.close();
});

const NAMED_MS = 10_000;
const FAILURES = {
  "an aborted .wasm": ["**/pyodide.asm.wasm-*.bin", (route) => route.abort("connectionreset"), /pyodide\.asm\.wasm-\w+\.bin did not come/],
  "packages that are not there": ["**/packages-*.bin", (route) => route.fulfill({ status: 404 }), /python\/packages-\w+\.bin: HTTP 404/],
  "the standard library behind a proxy's page": ["**/stdlib.zip-*.bin", (route) => route.fulfill({ status: 503 }), /python\/stdlib\.zip-\w+\.bin: HTTP 503/],
  "a blocked worker": ["**/assets/worker.js", (route) => route.abort("blockedbyclient"), /assets\/worker\.js did not come/],
  "a blocked Pyodide": ["**/pyodide.mjs", (route) => route.abort("blockedbyclient"), /python\/pyodide\.mjs did not come/],
};

for (const [name, [files, fail, says]] of Object.entries(FAILURES)) {
  test(`${name} is named, and what to do`, async () => {
    const { page, close } = await open(browser, server.address);
    await page.context().route(files, fail);
    const started = performance.now();
    await page.goto("/plan.html");
    await page.waitForSelector(".trouble");
    assert.ok(performance.now() - started < NAMED_MS);
    const text = await page.textContent("#trouble");
    assert.match(text, says);
    assert.match(text, /catalog.*Try again/s);
    assert.equal(await page.locator("#verdict").count(), 0);
    await close();
  });
}

test("once the file comes, Try again plans", async () => {
  const { page, close } = await open(browser, server.address);
  await page.context().route("**/packages-*.bin", (route) => route.abort());
  await page.goto("/plan.html#p=%7B%22gpu%22%3A%22h100%22%2C%22model%22%3A%22qwen3_8b%22%7D");
  await page.waitForSelector(".trouble");
  await page.context().unroute("**/packages-*.bin");
  await page.click("text=Try again");
  await page.waitForSelector("#verdict:has-text('Can be launched')");
  assert.equal(await page.locator(".trouble").count(), 0);
  await close();
});

test("an answer to other input is greyed at once and cannot be clicked, also while Python loads", async () => {
  const { page, close } = await open(browser, server.address);
  let go;
  const held = new Promise((resolve) => (go = resolve));
  await page.context().route("**/packages-*.bin", async (route) => {
    await held;
    await route.continue();
  });
  await page.goto("/index.html");
  await page.waitForSelector("#verdict:has-text('Can be launched')");
  assert.equal(await page.locator("#answer.stale").count(), 0, "it is the form's own");
  await page.fill("#count", "1");
  assert.equal(await page.locator("#answer.stale[inert]").count(), 1);
  go();
  await page.waitForSelector("#verdict:has-text('Cannot be launched')");
  assert.equal(await page.locator("#answer.stale").count(), 0);
  await page.fill("#more", "'unfinished");
  assert.equal(await page.locator("#answer.stale[inert]").count(), 1);
  await page.waitForSelector("#status:has-text('cannot be planned')");
  assert.equal(await page.textContent("#verdict"), "Nothing is planned");
  assert.equal(await page.locator("#answer pre, #memory, .tiles").count(), 0, "neither a command nor figures stay");
  await close();
});

test("a link that was cut says so, and plans nothing in its place", async () => {
  const { page, close } = await open(browser, server.address);
  const whole = `#${new URLSearchParams([["p", JSON.stringify({ gpu: "l4", model: "qwen3_8b" })], ["p", JSON.stringify({ gpu: "t4", model: "qwen3_8b" })]])}`;
  for (const cut of [whole.slice(0, 20), "#", whole.slice(0, 40), "#q=1"]) {
    await page.goto("about:blank");
    await page.goto(`/plan.html${cut}`);
    if (cut === "#") continue;
    await page.waitForSelector("#notice:has-text('cut or changed')");
    assert.equal(await page.locator("#verdict").count(), 0, cut);
  }
  await page.goto("about:blank");
  await page.goto(`/plan.html${whole.slice(0, -8)}`);
  await answered(page);
  await page.waitForSelector("#notice:has-text('plan 2 of 2 ends in the middle')");
  assert.match(await page.textContent("#room"), /l4/);
  await close();
});
