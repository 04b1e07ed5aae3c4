// The page that plans, in Chromium.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { ROOT, answered, launch, open, planLink as link, serve } from "./browser.js";
import { onSite } from "./on_site.js";

/** Goes to another plan on the same page, as a link in it does. */
const follow = (page, address) =>
  page.evaluate((hash) => new Promise((resolve) => {
    addEventListener("hashchange", () => resolve(), { once: true });
    location.hash = hash;
  }), new URL(address, "http://x").hash);
const text = (page, selector) => page.textContent(selector);

onSite("a plan that does not fit is refused, and the button of a remedy makes one that fits", async (page) => {
  await page.goto(link({ gpu: "h100", model: "llama_3_1_70b" }));
  await answered(page);
  assert.equal(await text(page, "#verdict"), "Cannot be launched: SGLang 0.5.23");
  assert.match(await text(page, "#findings"), /FIT001/);
  await page.click("button.remedy");
  await answered(page);
  assert.equal(await text(page, "#verdict"), "Can be launched: SGLang 0.5.23");
  assert.equal(await page.inputValue("#count"), "4");
  await page.click("#values button.link >> text=mem_fraction_static");
  await page.waitForSelector("dialog[open]");
  assert.match(await text(page, "#explained"), /memory_hook\.py/);
  await page.keyboard.press("Escape");
  await page.click("button:text-is('k8s')");
  await page.waitForSelector("text=no published image of SGLang 0.5.23 is known");
  await page.click("button:text-is('As a comment')");
  await page.waitForSelector("text=sglang-hydra check");
}, { viewport: { width: 1280, height: 1500 } });

onSite("a link restores the plans, a comparison and a pasted config.json", async (page, { browser, address }) => {
  const config = await readFile(path.join(ROOT, "conf/configs/Qwen--Qwen3-8B.json"), "utf8");
  await page.goto(link({ gpu: "h200", model: "me/mine", config, more: "tp_size=2 'context_length=8192'" }, { gpu: "l4", model: "qwen3_8b" }, { gpu: "h100", model: "llama_3_1_70b" }));
  await answered(page);
  await page.waitForSelector("table.compare");
  assert.match(await text(page, "#verdict"), /^(Can be launched|Unknown whether it can be launched): SGLang 0.5.23$/, "who wrote the link may have asked what is not recorded");
  assert.equal(await page.inputValue("#more"), "tp_size=2 'context_length=8192'");
  assert.match(await text(page, "#comparison"), /l4/);
  const first = await text(page, "#server-id");
  const again = await open(browser, address);
  await again.page.goto(page.url());
  await answered(again.page);
  assert.equal(await text(again.page, "#server-id"), first);
  assert.deepEqual(again.wrong, []);
  await again.close();
}, { viewport: { width: 1280, height: 1200 } });

onSite("a model that cannot be sized is unknown", async (page) => {
  await page.goto(link({ gpu: "b300", model: "deepseek-ai/DeepSeek-V4.1-Flash", more: "tp_size=8" }));
  await answered(page);
  assert.match(await text(page, "#verdict"), /^Unknown whether it can be launched: /);
});

onSite("an address keeps the release and the plan of its answer, and says when today's is another", async (page) => {
  await page.goto(link({ gpu: "h100", model: "qwen3_8b" }));
  await answered(page);
  const id = await text(page, "#server-id");
  await page.waitForFunction(() => location.hash.includes("&pin="));
  const hash = await page.evaluate(() => location.hash);
  const pin = JSON.parse(new URLSearchParams(hash.slice(1)).get("pin"));
  assert.deepEqual([pin.release, pin.id, pin.said], ["0.5.23", id, "Can be launched: SGLang 0.5.23"]);
  assert.match(pin.day, /^2\d{3}-\d\d-\d\d$/);
  const opened = async (change) => {
    const made = new URLSearchParams(hash.slice(1));
    made.set("pin", JSON.stringify({ ...pin, ...change }));
    await page.goto("about:blank");
    await page.goto(`/plan.html#${made}`);
    await answered(page);
    await page.waitForSelector("#verdict");
    return page.locator("#differs").allTextContents();
  };
  assert.deepEqual(await opened({}), [], "the answer is the same");
  assert.equal(await page.inputValue("#release"), "0.5.23");
  assert.equal(await text(page, "#server-id"), id);
  assert.match((await opened({ id: "0123456789abcdef" }))[0], new RegExp(`plan 0123456789abcdef.*Today: "Can be launched: SGLang 0\\.5\\.23" \\(plan ${id}\\)`));
  assert.match((await opened({ said: "Cannot be launched: SGLang 0.5.23" }))[0], /On 2\d{3}-\d\d-\d\d, SGLang 0\.5\.23: "Cannot be launched/);
  await page.fill("#count", "2");
  await page.waitForFunction((old) => document.getElementById("server-id")?.textContent !== old, id);
  await answered(page);
  await opened({ release: "0.5.20", id: "x" });
  assert.equal(await text(page, "#verdict"), "Can be launched: SGLang 0.5.20", "the release is the link's");
});

onSite("the link to copy is that of the catalog's page, with its picture, and leads to the plan; a picture of it is saved", async (page) => {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.goto(link({ gpu: "RTX 4090", count: "2", model: "Qwen/Qwen3-8B" }));
  await answered(page);
  const id = await text(page, "#server-id");
  await page.click("button:text-is('Copy link')");
  await page.waitForSelector("button:text-is('Copied')");
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(copied, /\/fit\/qwen3_8b\/rtx_4090\.html#p=/);
  const [saved] = await Promise.all([page.waitForEvent("download"), page.click("button:text-is('Save as picture')")]);
  const png = await readFile(await saved.path());
  assert.deepEqual([png.toString("latin1", 1, 4), png.readUInt32BE(16), png.readUInt32BE(20)], ["PNG", 1200, 630]);
  await page.goto(copied);
  await page.waitForURL("**/plan.html#**");
  await answered(page);
  assert.equal(await text(page, "#server-id"), id);
  await page.fill("#model", "acme/thing-8b");
  await page.waitForSelector("#hub");
  await answered(page);
  await page.click("button:text-is('Copy link')");
  await page.waitForSelector("button:text-is('Copied')");
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /\/plan\.html#p=/, "the catalog has no page of it");
});

onSite("what is typed wrong has an answer, and nothing of it becomes markup", async (page) => {
  const hostile = "<img src=x onerror=document.title='taken'>";
  await page.goto(link({ gpu: "h100", model: hostile, more: "tp_siez=8" }));
  await answered(page);
  assert.match(await text(page, "#answer"), /tp_size/);
  for (const config of [hostile, "{\"a\": 1,\n x", "[1]", "{\"architectures\": [\"</script><img src=x>\"]}"]) {
    await follow(page, link({ gpu: "h100", model: hostile, config }));
    await answered(page);
    assert.match(await text(page, "#answer"), /<img|config\.json/);
  }
  assert.equal(await page.locator("main img, main script:not([id]):not([src])").count(), 0);
  assert.doesNotMatch(await page.title(), /^taken/);
  await follow(page, link({ gpu: "h100", model: "qwen3_8b", more: "'unfinished" }));
  await answered(page);
  assert.match(await text(page, "#status"), /cannot be planned/);
});

onSite("back and forward lead through the plans that were made, and an unknown release is one", async (page) => {
  await page.goto(link({ gpu: "h100", model: "llama_3_1_70b" }));
  await answered(page);
  await page.click("button.remedy");
  await page.waitForSelector("#verdict:has-text('Can be launched')");
  await page.goBack();
  await page.waitForSelector("#verdict:has-text('Cannot be launched')");
  assert.equal(await page.inputValue("#count"), "");
  await page.goForward();
  await page.waitForSelector("#verdict:has-text('Can be launched')");
  assert.equal(await page.inputValue("#count"), "4");
  await follow(page, link({ gpu: "h100", model: "qwen3_8b", release: "0.4.1" }));
  await page.waitForSelector("#answer:has-text('engine.version=0.4.1')");
  assert.equal(await page.inputValue("#release"), "0.4.1");
  await follow(page, link({ gpu: "h100", model: "llama_3_1_70b" }));
  await page.waitForSelector("button.remedy");
  await page.evaluate(() => (document.getElementById("more").value = "'unfinished"));
  await page.click("button.remedy");
  await page.waitForSelector("#status:has-text('cannot be planned')");
  await answered(page);
});

test("what ends Python is said, and the next plan starts it again", async () => {
  const server = await serve();
  const browser = await launch();
  try {
    const { page } = await open(browser, server.address);
    await page.goto(link({ gpu: "h100", model: "qwen3_8b" }));
    await answered(page);
    // No text is known that ends it, so its next answer fails as one does that nests beyond the engine's stack.
    await page.workers()[0].evaluate(() => {
      const post = self.postMessage.bind(self);
      self.postMessage = () => {
        self.postMessage = post;
        throw new RangeError("Maximum call stack size exceeded");
      };
    });
    await follow(page, link({ gpu: "h100", model: "llama_3_1_8b" }));
    await page.waitForSelector("#status:has-text('starts again')");
    await follow(page, link({ gpu: "h100", model: "qwen3_8b" }));
    await page.waitForSelector("#verdict:has-text('Can be launched')");
  } finally {
    await browser.close();
    server.close();
  }
});

onSite("for every recipe and 200 random inputs its plans equal native ones, with each value, reason and finding", async (page) => {
  await page.goto(link({ gpu: "h100", model: "qwen3_8b" }));
  await answered(page);
  const cases = JSON.parse(await readFile(path.join(ROOT, "build/native.json"), "utf8"))
    .filter(({ exact }) => !exact);
  assert.ok(cases.length > 300);
  for (const { question, answer } of cases) {
    const made = await page.evaluate(async (asked) => (await import("./assets/python.js")).askText(asked, false), question);
    assert.equal(made, answer, question.words.join(" "));
  }
});

onSite("a model that no preset knows is planned with the config.json that a click fetches", async (page) => {
  const config = await readFile(path.join(ROOT, "conf/configs/Qwen--Qwen3-8B.json"), "utf8");
  const asked = [];
  let status = 401;
  await page.route("https://huggingface.co/**", (route) => {
    asked.push(route.request().url());
    return route.fulfill({ status, body: config, headers: { "Access-Control-Allow-Origin": "*" } });
  });
  await page.goto(link({ gpu: "RTX 4090", model: "acme/thing-8b" }));
  await answered(page);
  assert.equal(await text(page, "#verdict"), "Unknown whether it can be launched: SGLang 0.5.23");
  assert.doesNotMatch(await text(page, "#answer"), /\.cache|HF_HUB_OFFLINE/);
  assert.match(await text(page, "#answer"), /RTX 4090 is taken for rtx_4090.*1 to 10 kB.*huggingface\.co/s);
  assert.deepEqual(asked, [], "nothing is fetched before the click");
  await page.click("#hub button");
  await page.waitForSelector("#hub [role=alert]:has-text('gated, private or not there')");
  status = 200;
  await page.click("#hub button");
  await page.waitForSelector("#config-state:has-text('from huggingface.co')");
  await answered(page);
  assert.deepEqual(asked, Array(2).fill("https://huggingface.co/acme/thing-8b/resolve/main/config.json"));
  assert.match(await text(page, "#room"), /KV tokens/);
}, { elsewhere: /^https:\/\/huggingface\.co\//, mayFail: true });

onSite("requests that the server has no room for are judged", async (page) => {
  await page.goto(link({ gpu: "h100", model: "llama_3_1_70b", count: "4", users: "32" }));
  await answered(page);
  assert.equal(await text(page, "#verdict"), "Can be launched, with too little capacity: SGLang 0.5.23");
  assert.match(await text(page, "#why"), /capacity for 3 requests of 131,072 tokens at a time, and 32 are needed/);
  await page.fill("#context", "8192");
  await page.waitForSelector("#verdict:text-is('Can be launched: SGLang 0.5.23')");
  assert.match(await text(page, ".tiles"), /48.*of 8,192 tokens/s);
});

onSite("each node has a whole command", async (page) => {
  await page.goto(link({ gpu: "h100", model: "llama_3_1_70b", count: "16", more: "nnodes=2" }));
  await answered(page);
  const commands = await page.locator(".card .block pre").allTextContents();
  assert.deepEqual(commands.map((line) => line.match(/--dist-init-addr HEAD:PORT --nnodes 2 --node-rank (\d)$/)?.[1]), ["0", "1"]);
});

onSite("a release that is not here says so and names the command that asks it", async (page) => {
  await page.context().route("**/releases/index.json", (route) => route.fulfill({ body: "{}" }));
  await page.goto(link({ gpu: "h100", model: "qwen3_8b", release: "0.5.9", count: "2", more: "context_length=7777 random_seed=3" }));
  await answered(page);
  assert.equal(await text(page, "#verdict"), "Unknown whether it can be launched: SGLang 0.5.9");
  assert.match(await text(page, "#answer"), /SGLang 0\.5\.9 was not asked/);
  assert.match(await text(page, "#answer"), /the command line asks that release.*engine\.version=0\.5\.9/s);
});

onSite("it can be read on a phone and in the dark", async (page) => {
  await page.goto(link({ gpu: "h100", model: "qwen3_8b" }));
  await answered(page);
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 380, "it scrolls sideways");
}, { viewport: { width: 380, height: 800 }, colorScheme: "dark" });

onSite("without WebAssembly the page says so", async (page) => {
  await page.addInitScript("delete globalThis.WebAssembly");
  await page.goto("/plan.html");
  await page.waitForSelector("#status:has-text('no WebAssembly')");
});
