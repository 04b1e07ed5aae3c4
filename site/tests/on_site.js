// Tests on a page of the built site, each on a page of its own.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { launch, open, serve } from "./browser.js";

let started;
after(async () => {
  const { server, browser } = (await started) ?? {};
  await browser?.close();
  server?.close();
});

async function start() {
  const server = await serve();
  return { server, browser: await launch() };
}

/**
 * Tests `work`, which gets a page, whose addresses begin at the site, and the browser with the site's address. What
 * goes wrong on the page, a request to another host too, fails the test.
 */
export function onSite(name, work, options = {}) {
  test(name, async () => {
    const { server, browser } = await (started ??= start());
    const { page, wrong, close } = await open(browser, server.address, options);
    try {
      await work(page, { browser, address: server.address });
      assert.deepEqual(wrong, []);
    } finally {
      await close();
    }
  });
}
