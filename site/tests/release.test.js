// Releases whose own argument code runs in the browser: what is not recorded is exact there too.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { ROOT, answered } from "./browser.js";
import { onSite } from "./on_site.js";
import { parseJson } from "../src/python.js";

const LINK = `/plan.html#${new URLSearchParams({ p: JSON.stringify({ gpu: "h200", count: "8", model: "qwen3_8b", release: "0.5.23", more: "context_length=32768" }) })}`;
const MOST_UNKNOWN = 5;
const NATIVE = process.env.NATIVE ?? path.join(ROOT, "build/native.json");
const text = (page, selector) => page.textContent(selector);

onSite("what is not recorded is asked of the release itself, fetched then and not before", async (page) => {
  const asked = [];
  page.on("request", (request) => /releases\/.*\.bin/.test(request.url()) && asked.push(path.basename(request.url())));
  await page.goto("/plan.html#p=%7B%22gpu%22%3A%22h100%22%2C%22model%22%3A%22qwen3_8b%22%7D");
  await answered(page);
  assert.deepEqual(asked, [], "a recorded answer needs no release");
  await page.goto("about:blank");
  await page.goto(LINK);
  await page.waitForSelector("#status:has-text('own argument code')");
  await answered(page);
  assert.equal(await text(page, "#verdict"), "Can be launched: SGLang 0.5.23");
  assert.ok(asked.some((name) => name.startsWith("sglang-0.5.23-")));
  assert.equal(new Set(asked).size, asked.length, "each file comes once");
});

onSite("every release of the table is asked in the browser, an old one by way of the newer ones", async (page) => {
  await page.goto("/plan.html");
  const offered = (await page.locator("#release option").allTextContents()).slice(1).filter((name) => !name.includes(".post"));
  const index = await (await page.request.get("/releases/index.json")).json();
  for (const release of offered) assert.ok(release === "0.5.2" || Object.keys(index).some((name) => name.startsWith(`sglang-${release}-`)), release);
  await page.goto(`/plan.html#${new URLSearchParams({ p: JSON.stringify({ gpu: "h200", count: "8", model: "qwen3_8b", release: "0.5.3", more: "context_length=32768" }) })}`);
  await page.waitForSelector("#status:has-text('own argument code')");
  await answered(page);
  assert.equal(await text(page, "#verdict"), "Can be launched: SGLang 0.5.3");
  assert.doesNotMatch(await text(page, "#answer"), /estimate/);
});

onSite("a release that does not come leaves an estimate that says why", async (page) => {
  await page.context().route("**/releases/sglang-*", (route) => route.fulfill({ status: 404 }));
  await page.goto(LINK);
  await answered(page);
  assert.match(await text(page, "#answer"), /cannot be run in this browser.*HTTP 404/s);
  assert.match(await text(page, "#verdict"), /Unknown/);
}, { mayFail: true });

onSite("a file that was changed on the way is not run", async (page) => {
  await page.context().route("**/releases/transformers-*", async (route) => {
    const response = await route.fetch();
    const { gunzipSync, gzipSync } = await import("node:zlib");
    const content = gunzipSync(await response.body());
    content[content.length - 9] ^= 1;
    content[content.indexOf("def ", 400_000)] = 68;
    await route.fulfill({ response, body: gzipSync(content) });
  });
  await page.goto(LINK);
  await page.waitForFunction(() => /changed or added|not what its wheel had/.test(document.body.textContent));
}, { mayFail: true });

/** What a release decides: remedies on other kinds of GPU are estimates here. */
const decided = ({ plan, launch, findings, memory, commands }) => {
  const { server_id, values, basis, engine, fit } = plan ?? {};
  return { server_id, values, basis, engine, fit, launch, ids: findings.map((item) => item.id), memory, commands };
};

onSite("for every model, and random inputs of three releases, it has the ids and values of native plans", async (page) => {
  await page.goto("/plan.html#p=%7B%22gpu%22%3A%22h100%22%2C%22model%22%3A%22qwen3_8b%22%7D");
  await answered(page);
  const cases = JSON.parse(await readFile(NATIVE, "utf8")).filter(({ exact }) => exact);
  assert.ok(cases.length >= 100);
  const ofModels = cases.filter(({ question }) => question.words.includes("context_length=32768") && question.words.includes("tp_size=8"));
  const releases = {};
  const unknown = [];
  const wrong = [];
  for (const one of cases) {
    const { question, answer } = one;
    const native = parseJson(answer);
    const made = parseJson(await page.evaluate(async (asked) => (await import("./assets/python.js")).askText(asked), question));
    const basis = `${made.plan?.engine.version ?? "none"} ${made.plan?.basis ?? "no plan"}`;
    releases[basis] = (releases[basis] ?? 0) + 1;
    if (ofModels.includes(one) && made.launch === "unknown") unknown.push(question.words.join(" "));
    try {
      assert.deepEqual(decided(made), decided(native));
    } catch (why) {
      wrong.push(`${question.words.join(" ")}: ${why.message.slice(0, 600)}`);
    }
  }
  console.log(`# ${ofModels.length} models on 8 x h200 with context_length=32768: ${unknown.length} unknown`);
  console.log(`# ${cases.length - wrong.length} of ${cases.length} equal in every value: ${JSON.stringify(releases)}`);
  assert.deepEqual(wrong, []);
  assert.ok(unknown.length <= MOST_UNKNOWN, unknown.join("\n"));
});
