// Keeps the pages that plan for a visit without a network: the build names the small files, the worker keeps the large
// ones as it fetches them (worker.js). Small files come from the network first, so that one build is shown; the name of
// a large one has the hash of its content.

const BUILD = "";
/** @type {string[]} */
const SMALL = [];
const HOME = new URL(".", location.href).href;

/** @typedef {Event & {waitUntil: (work: Promise<unknown>) => void, request: Request, respondWith: (made: Promise<Response>) => void}} Event_ */
/** @typedef {{skipWaiting: () => Promise<void>, clients: {claim: () => Promise<void>}}} Scope */
const scope = /** @type {Scope} */ (/** @type {unknown} */ (self));

/** @param {string} name @param {(event: Event_) => void} listener */
const on = (name, listener) => addEventListener(name, (event) => listener(/** @type {Event_} */ (event)));

on("install", (event) => event.waitUntil(caches.open(BUILD).then((cache) => cache.addAll(SMALL)).then(() => scope.skipWaiting())));
on("activate", (event) => event.waitUntil(removeOlder().then(() => scope.clients.claim())));
on("fetch", (event) => {
  const { request } = event;
  if (request.method === "GET" && request.url.startsWith(HOME)) event.respondWith(answer(request));
});

async function removeOlder() {
  for (const name of await caches.keys()) if (name !== BUILD) await caches.delete(name);
}

/** @param {Request} request */
async function answer(request) {
  const cache = await caches.open(BUILD);
  const kept = request.url.endsWith(".bin") ? await cache.match(request) : undefined;
  if (kept) return kept;
  return fetch(request).catch(async (why) => {
    const found = await cache.match(request, { ignoreSearch: true });
    if (!found) throw why;
    return found;
  });
}
