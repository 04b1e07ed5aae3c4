// After one visit the pages that plan need no network, and what is rarely needed comes when it is.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { SITE, answered, planLink as link } from "./browser.js";
import { onSite } from "./on_site.js";

const PLAN = link({ gpu: "h100", model: "qwen3_8b" });
const NOT_RECORDED = link({ gpu: "h200", count: "8", model: "qwen3_8b", release: "0.5.23", more: "context_length=32768" });
const OLDER = link({ gpu: "h100", model: "qwen3_8b", release: "0.5.20" });
const build = JSON.parse((await readFile(path.join(SITE, "sw.js"), "utf8")).match(/BUILD = (".*");/)[1]);
/** Everything is kept once the worker of the service stands, and nothing is still being written. */
const kept = async (page, parts) => {
  await page.evaluate(() => navigator.serviceWorker.ready);
  await page.waitForFunction(async ([name, wanted]) => {
    const addresses = (await (await caches.open(name)).keys()).map(({ url }) => url);
    return wanted.every((part) => addresses.some((address) => address.includes(part)));
  }, [build, ["index.html", "pyodide.asm.js-", "pyodide.asm.wasm-", "stdlib.zip-", "packages-", ...parts]]);
};
const verdict = (page) => page.textContent("#verdict");

onSite("after one visit, home, plans and a reload need no network, nor does a release that was fetched", async (page) => {
  await page.goto(NOT_RECORDED);
  await answered(page);
  const online = await page.textContent("#server-id");
  await kept(page, ["releases/sglang-0.5.23-", "library-"]);
  await page.context().setOffline(true);
  await page.reload();
  await answered(page);
  assert.equal(await page.textContent("#server-id"), online);
  assert.equal(await verdict(page), "Can be launched: SGLang 0.5.23");
  await page.goto("/");
  await page.waitForSelector("#form[data-ready]");
  await page.fill("#count", "1");
  await page.waitForSelector("#verdict:has-text('Cannot be launched')");
  await page.goto(OLDER);
  await page.waitForSelector("#status:has-text('answers-0.5.20 did not come')");
  await page.context().setOffline(false);
  await page.fill("#count", "1");
  await page.waitForSelector("#verdict:has-text('SGLang 0.5.20')");
}, { mayFail: true });

onSite("what was kept of another build goes, and is not shown", async (page) => {
  await page.goto("/paste.html");
  await page.evaluate(async () => {
    const old = await caches.open("another build");
    await old.put(new URL("plan.html", location.href).href, new Response("another build"));
  });
  await page.goto(PLAN);
  await answered(page);
  await kept(page, []);
  assert.deepEqual(await page.evaluate(() => caches.keys()), [build]);
});

onSite("a host that forbids it leaves nothing in the browser", async (page) => {
  await page.route("**/own.json", (route) => route.fulfill({ body: "{}", headers: { "Cache-Control": "no-store" } }));
  await page.goto(PLAN);
  await answered(page);
  assert.deepEqual(await page.evaluate(() => caches.keys()), []);
  assert.equal(await page.evaluate(async () => (await navigator.serviceWorker.getRegistrations()).length), 0);
});

onSite("older releases' answers, rare modules and refusals come when a question needs them, once", async (page) => {
  const asked = [];
  page.on("request", (request) => /python\/(?:answers|rest|refusals|library)/.test(request.url()) && asked.push(path.basename(request.url()).replace(/-\w+\.bin$/, "")));
  await page.goto(PLAN);
  await answered(page);
  assert.deepEqual(asked, [], "a plan of the newest release needs none");
  await page.goto("about:blank");
  await page.goto(OLDER);
  await answered(page);
  assert.equal(await verdict(page), "Can be launched: SGLang 0.5.20");
  assert.deepEqual(asked, ["answers-0.5.20"]);
  await page.click("button:text-is('k8s')");
  await page.waitForSelector("text=kind: Deployment");
  await page.goto("/paste.html");
  await page.fill("#text", "ValueError: tp_size must be at least 1\nTraceback (most recent call last):");
  await page.click("button.go");
  await answered(page);
  assert.ok(asked.includes("rest"), String(asked));
});
