// Fetches a config.json from the hub: on a click alone, from the one other host that the page's policy allows.

export const HUB = "huggingface.co";
const MOST_BYTES = 1_000_000;

/**
 * The config.json of a model. Throws an Error that says what the hub answered.
 * @param {string} id ORG/NAME
 * @returns {Promise<string>}
 */
export async function fetchConfig(id) {
  const path = id.split("/").map(encodeURIComponent).join("/");
  const options = /** @type {RequestInit} */ ({ credentials: "omit", referrerPolicy: "no-referrer", signal: AbortSignal.timeout(10_000) });
  const response = await fetch(`https://${HUB}/${path}/resolve/main/config.json`, options).catch((why) => {
    throw new Error(why.name === "TimeoutError" ? `${HUB} did not answer in 10 seconds` : `${HUB} cannot be reached from here`);
  });
  if (response.status === 401 || response.status === 403) throw new Error(`${HUB} shows ${id} to nobody who is not signed in: it is gated, private or not there`);
  if (response.status === 404) throw new Error(`${id} has no config.json on ${HUB}`);
  if (!response.ok) throw new Error(`${HUB} answered ${response.status}`);
  const text = await response.text();
  if (text.length > MOST_BYTES) throw new Error(`that file has ${text.length.toLocaleString("en")} characters, more than a config.json has`);
  return text;
}
