// A server of the built site on 127.0.0.1 and Debian's Chromium on it.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
export const SITE = path.join(ROOT, "build/site");
/** A machine under load may take long; a test waits for a condition, and this is where it gives up. */
const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 180_000);
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".json": "application/json", ".wasm": "application/wasm", ".svg": "image/svg+xml", ".zip": "application/zip" };
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** Serves the site; `close` ends it. */
export async function serve() {
  const server = createServer(async (request, response) => {
    const name = decodeURIComponent(new URL(request.url, "http://x").pathname);
    const file = path.join(SITE, name.endsWith("/") ? `${name}index.html` : name);
    try {
      const content = await readFile(file);
      response.writeHead(200, { "Cache-Control": "max-age=600", "Content-Type": TYPES[path.extname(file)] ?? "application/octet-stream" });
      response.end(content);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { address: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

/** Starts Chromium. */
export function launch() {
  const found = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
  if (!found) throw new Error("the browser is missing: apt-get install chromium");
  return chromium.launch({ executablePath: found, args: FLAGS });
}

/**
 * Opens a page that remembers what went wrong: console errors, failed requests, requests to other hosts than those that
 * `elsewhere` allows; with `mayFail` neither what does not come nor the console's word on it.
 */
export async function open(browser, address, { elsewhere = null, mayFail = false, ...options } = {}) {
  const context = await browser.newContext({ baseURL: address, viewport: { width: 1280, height: 1000 }, ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => message.type() === "error" && !mayFail && wrong.push(message.text()));
  page.on("pageerror", (failure) => wrong.push(String(failure)));
  page.on("requestfailed", (request) => {
    const why = request.failure()?.errorText;
    // Leaving a page ends what it still loads.
    if (why !== "net::ERR_ABORTED" && !mayFail) wrong.push(`${why}: ${request.url()}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(address) && !/^(data|blob):/.test(request.url()) && !elsewhere?.test(request.url())) wrong.push(`elsewhere: ${request.url()}`);
  });
  page.on("response", (response) => response.status() >= 400 && !mayFail && wrong.push(`${response.status()}: ${response.url()}`));
  return { page, wrong, close: () => context.close() };
}

/** Waits until the answer on the page is that to what was asked last. */
export async function answered(page) {
  await page.waitForSelector("#answer[aria-busy=false]");
}

const AXE = readFile(path.join(ROOT, "site/node_modules/axe-core/axe.min.js"), "utf8");

/** What axe-core finds on the page as it stands that keeps people from using it. */
export async function violations(page) {
  await page.evaluate(await AXE);
  const { violations: found } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const serious = found.filter(({ impact }) => ["serious", "critical"].includes(impact));
  return serious.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 5).map((node) => node.target.join(" ")).join(", ")} (${nodes.length})`);
}

/** The address of plans. @param {...Record<string, string>} plans */
export function planLink(...plans) {
  const parameters = new URLSearchParams();
  for (const plan of plans) parameters.append("p", JSON.stringify(plan));
  return `/plan.html#${parameters}`;
}
