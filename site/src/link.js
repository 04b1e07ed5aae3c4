// The address of plans.

const FIELDS = ["gpu", "count", "model", "release", "users", "context", "more"];
export const MOST = 4;

/** What a link keeps of the answer: the release, the id of the plan, the verdict and the day. */
const PINNED = ["release", "id", "said", "day"];
/** @typedef {Record<string, string>} Pin */

const NAMED = /((?:engine\.env\.\w*(?:key|token|secret|pass|passw\w*|passphrase|pwd|pw|dsn|cookie|auth|cred\w*|pat)|api_key)=)("[^"]*"|'[^']*'|[^\s'"]+)/gi;
const FORMED = /\b(hf_|sk-|gh[pousr]_|github_pat_|glpat-|nvapi-|xox[a-z]-|:\/\/[^\s:@/]*:)(?:[^\s@/]+(?=@)|[\w-]{16,})/g;

/** A form without its secrets, for an address that others are given. @param {Form} form @returns {Form} */
const open = (form) => Object.fromEntries(Object.entries(form).map(([name, value]) => [name, value.replace(NAMED, "$1***").replace(FORMED, "$1***")]));

/**
 * The part of an address that names plans, the first one the plan of the form, and the answer to it.
 * @param {Plan[]} plans @param {Pin | null} [pin]
 */
export function address(plans, pin = null) {
  const parameters = new URLSearchParams();
  for (const { form, config } of plans) parameters.append("p", JSON.stringify({ ...open(form), ...(config ? { config } : {}) }));
  if (pin) parameters.append("pin", JSON.stringify(pin));
  return `#${parameters}`;
}

/** An address without its answer. @param {string} hash */
export const unpinned = (hash) => hash.replace(/&pin=[^&]*/, "");

/** What the form holds, without its empty fields. @param {(name: string) => string} valueOf @returns {Form} */
export function formOf(valueOf) {
  return Object.fromEntries(FIELDS.map((name) => [name, valueOf(name).trim()]).filter(([, value]) => value));
}

/** @param {(name: string) => void} visit */
export function eachField(visit) {
  FIELDS.forEach(visit);
}

/**
 * The plans that an address names, and what of it cannot be read, as sentences.
 * @param {string} hash
 * @returns {{plans: Plan[], wrong: string[], pin: Pin | null}}
 */
export function readAddress(hash) {
  const parameters = new URLSearchParams(hash.slice(1));
  const written = parameters.getAll("p");
  /** @type {Plan[]} */
  const plans = [];
  const wrong = [];
  if (hash.length > 1 && !written.length) wrong.push("it names no plan");
  if (written.length > MOST) wrong.push(`it names ${written.length} plans, and ${MOST} are shown at most`);
  for (const [place, text] of written.slice(0, MOST).entries()) {
    const read = readPlan(text);
    if (read) plans.push(read.plan);
    if (!read) wrong.push(`plan ${place + 1} of ${written.length} ends in the middle`);
    else if (read.unknown.length) wrong.push(`${read.unknown.join(", ")} of plan ${place + 1} is no field of the form`);
  }
  const answered = parameters.get("pin");
  const pin = answered === null ? null : readPin(answered);
  if (answered !== null && !pin) wrong.push("what was answered then ends in the middle");
  return { plans, wrong, pin };
}

/** @param {string} text @returns {Pin | null} */
function readPin(text) {
  try {
    const pin = JSON.parse(text);
    return PINNED.every((name) => typeof pin[name] === "string") ? pin : null;
  } catch {
    return null;
  }
}

/** @param {string} text @returns {{plan: Plan, unknown: string[]} | null} */
function readPlan(text) {
  try {
    const { config = null, ...form } = JSON.parse(text);
    const isKnown = (/** @type {[string, unknown]} */ [name, value]) => FIELDS.includes(name) && typeof value === "string";
    const entries = Object.entries(form);
    const plan = { form: Object.fromEntries(entries.filter(isKnown)), config: typeof config === "string" ? config : null };
    return { plan, unknown: entries.filter((entry) => !isKnown(entry)).map(([name]) => name) };
  } catch {
    return null;
  }
}
