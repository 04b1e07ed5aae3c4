// Every kind of page is usable with a keyboard, by a screen reader as far as a program can check that, and on a phone.
import assert from "node:assert/strict";
import { answered, violations } from "./browser.js";
import { onSite } from "./on_site.js";

const LOG = "server_args=ServerArgs(model_path='meta-llama/Llama-3.1-70B-Instruct', tp_size=1)\ntorch.OutOfMemoryError: CUDA out of memory.";
/** The theme of the documentation looks once which colours are wanted, and remembers. @param {string} scheme */
const inColours = async (page, scheme) => {
  await page.addInitScript(() => localStorage.clear());
  await page.reload();
  const named = scheme === "dark" ? "slate" : "default";
  await page.waitForFunction((wanted) => document.body.dataset.mdColorScheme === wanted, named, { timeout: 10_000 });
};
const PAGES = {
  "index.html": null,
  "plan.html": answered,
  "paste.html": async (page) => {
    await page.fill("#text", LOG);
    await page.click("button.go");
    await answered(page);
  },
  "catalog.html": (page) => page.waitForSelector("#shown:has-text('models')"),
  "fit/qwen3_8b/index.html": null,
  "fit/qwen3_8b/l4.html": null,
  "fit/llama_3_1_70b/h100.html": null,
  "docs/index.html": inColours,
  "docs/tutorial.html": inColours,
  "docs/reference/rules.html": inColours,
};
const PHONE_PX = 360;

for (const [name, ready] of Object.entries(PAGES)) {
  onSite(`${name}: no serious violation of what axe-core checks, and no wider than a phone`, async (page) => {
    await page.goto(`/${name}`);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await ready?.(page, colorScheme);
      assert.deepEqual(await violations(page), [], colorScheme);
    }
    await page.setViewportSize({ width: PHONE_PX, height: 740 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= PHONE_PX, `${wide} pixels wide`);
  });
}

/** Presses Tab until an element that matches has the focus. Fails where none of the next ones does. */
async function tabTo(page, selector, most = 40) {
  for (let pressed = 0; pressed < most; pressed++) {
    await page.keyboard.press("Tab");
    if (await page.evaluate((wanted) => document.activeElement.matches(wanted), selector)) return;
  }
  assert.fail(`Tab does not reach ${selector}`);
}

onSite("a plan is made, mended and explained with the keyboard alone", async (page) => {
  await page.goto("/plan.html");
  await answered(page);
  for (const id of ["gpu", "count", "model", "release", "users", "more"]) await tabTo(page, `#${id}`);
  await page.keyboard.type("tp_size=3");
  await page.keyboard.press("Enter");
  await answered(page);
  assert.match(await page.textContent("#verdict"), /^Cannot be launched/);
  await tabTo(page, "button.remedy");
  await page.keyboard.press("Enter");
  await answered(page);
  assert.match(await page.textContent("#verdict"), /^(Can be launched|Unknown)/, "the remedy's answer may not be recorded");
  await tabTo(page, "#values button.link");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog[open] pre");
  await page.keyboard.press("Escape");
  assert.ok(await page.evaluate(() => document.activeElement.matches("#values button.link")), "the focus is where it was");
});

onSite("the matrix is sorted and left with the keyboard alone", async (page) => {
  await page.goto("/catalog.html");
  await tabTo(page, "#filter");
  await page.keyboard.type("qwen3_8b");
  await tabTo(page, "button[data-sort=h100]");
  await page.keyboard.press("Enter");
  assert.equal(await page.getAttribute("#matrix th:has(button[data-sort=h100])", "aria-sort"), "ascending");
  await tabTo(page, "#matrix td a");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/fit/qwen3_8b/*.html");
});
