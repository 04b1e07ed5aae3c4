// Shows a plan that Python made.
import { block, h } from "./dom.js";

/** @typedef {{level: string, id: string, message: string, hint: string | null, set_by: string[],
 *   remedies: {words: string[], note: string}[]}} Finding */
/** @typedef {Record<string, any>} Answer */

const LEVELS = ["error", "warning", "info"];

/**
 * The four lines that come first: the verdict, the GPUs, the room in memory, the command.
 * @param {Answer} answer
 */
export function verdict(answer) {
  if (!answer.plan) return h("h2", { class: "no", id: "verdict" }, answer.screen ? "Several servers" : "No plan can be made");
  return h(
    "div",
    {},
    h("h2", { class: answer.launch, id: "verdict" }, headline(answer)),
    h(
      "dl",
      { class: "first" },
      ...pair("Why", answer.why || "nothing speaks against it"),
      ...pair("GPUs", answer.gpus),
      ...pair("Room", room(answer)),
      ...pair("Command", answer.command ? block(answer.command) : "none"),
      ...pair("Plan", h("code", { id: "server-id" }, answer.plan.server_id)),
    ),
  );
}

/** @param {Answer} answer */
export function headline(answer) {
  const words = /** @type {Record<string, string>} */ ({ yes: "Can be launched", no: "Cannot be launched", unknown: "Unknown whether it can be launched" });
  return `${words[answer.launch]}: ${answer.by}`;
}

/** @param {Answer} answer */
export function room(answer) {
  const fit = answer.plan.fit;
  if (!fit || fit.left_gib === null) return answer.room;
  const error = fit.error_gib === null ? "" : ` (within ${fit.error_gib.toFixed(1)})`;
  const left = fit.left_gib < 0 ? `${(-fit.left_gib).toFixed(1)} GiB are missing` : `${fit.left_gib.toFixed(1)} GiB are left`;
  return `${answer.room}; ${left} on each GPU${error}`;
}

/** @param {string} name @param {Node | string} value */
function pair(name, value) {
  return [h("dt", {}, name), h("dd", {}, value)];
}

/**
 * The memory of one GPU as a bar, and its table where there is room for it.
 * @param {Answer} answer
 * @param {boolean} [isBarAlone]
 */
export function memory(answer, isBarAlone = false) {
  const size = answer.plan.fit?.memory_gib;
  if (!answer.memory.length || !size) return null;
  const rows = answer.memory.map((/** @type {string[]} */ [name, size, note]) => ({ name, size: size.trim(), note }));
  const used = rows.filter((/** @type {any} */ row) => row.name !== "left" && Number(row.size) > 0);
  const total = Math.max(size, used.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + Number(row.size), 0));
  const bar = h("div", { class: "bar", "aria-hidden": "true" });
  used.forEach((/** @type {any} */ row) => {
    const part = h("span", { class: `part ${slug(row.name)}`, title: `${row.name} ${row.size} GiB` });
    part.style.width = `${(Number(row.size) / total) * 100}%`;
    bar.append(part);
  });
  const end = h("span", { class: "end", title: `the GPU's ${size.toFixed(1)} GiB` });
  end.style.left = `${(size / total) * 100}%`;
  const fit = answer.plan.fit;
  const error = h("span", { class: "error", title: `within ${fit?.error_gib} GiB` });
  if (fit?.error_gib) {
    const from = Math.max(0, (size - fit.left_gib - fit.error_gib) / total);
    error.style.left = `${from * 100}%`;
    error.style.width = `${Math.min(1 - from, (2 * fit.error_gib) / total) * 100}%`;
  }
  bar.append(end, error);
  if (isBarAlone) return bar;
  const body = rows.map((/** @type {any} */ row) =>
    h("tr", {}, h("th", { scope: "row" }, h("span", { class: `key ${slug(row.name)}` }), row.name), h("td", { class: "number" }, row.size), h("td", {}, row.note)),
  );
  return h("section", {}, h("h3", {}, "Memory of one GPU, GiB"), bar, h("div", { class: "wide" }, h("table", {}, h("tbody", {}, body))));
}

/** @param {string} name */
function slug(name) {
  return `m-${name.toLowerCase().replace(/[^a-z]+/g, "-")}`;
}

/**
 * Findings, errors first. `apply` takes the words of a remedy, `explain` an id.
 * @param {Finding[]} found
 * @param {(words: string[]) => void} apply
 * @param {(id: string) => void} explain
 */
export function findings(found, apply, explain) {
  if (!found.length) return null;
  const sorted = [...found].sort((a, b) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level));
  return h("section", { id: "findings" }, h("h3", {}, "Findings"), h("ul", { class: "findings" }, sorted.map((item) => one(item, apply, explain))));
}

/** @param {Finding} item @param {(words: string[]) => void} apply @param {(id: string) => void} explain */
function one(item, apply, explain) {
  const remedies = item.remedies.map((remedy) =>
    h("li", {}, h("button", { type: "button", class: "remedy", click: () => apply(remedy.words) }, remedy.words.join(" ")), ` ${remedy.note.replace(/^: /, "")}`),
  );
  const other = item.remedies.length ? null : item.hint;
  return h(
    "li",
    { class: item.level },
    h("strong", {}, item.level),
    " ",
    h("button", { type: "button", class: "link", click: () => explain(item.id) }, item.id),
    " ",
    item.message,
    item.set_by.map((line) => h("div", { class: "dim" }, line)),
    remedies.length ? h("div", {}, "What helps:", h("ul", {}, remedies)) : null,
    other ? h("div", { class: "hint" }, other) : null,
  );
}

/**
 * What was set and what the rules made of it; a click on a name explains it.
 * @param {Answer} answer
 * @param {(name: string) => void} explain
 */
export function values(answer, explain) {
  const link = (/** @type {string} */ name) => h("button", { type: "button", class: "link", click: () => explain(name) }, name);
  const set = answer.set.map((/** @type {string[]} */ [, name, value, who]) => h("tr", {}, h("th", { scope: "row" }, link(name)), h("td", {}, value), h("td", { class: "dim" }, who ?? "")));
  const row = (/** @type {{cells: string[]}} */ { cells: [mark, name, change, rule, reason] }) =>
    h("tr", { class: mark === "!" ? "warning" : "" }, h("th", { scope: "row" }, link(name)), h("td", {}, change), h("td", {}, link(rule)), h("td", { class: "dim" }, reason));
  const own = answer.changed.filter((/** @type {any} */ entry) => !entry.constant);
  const constant = answer.changed.filter((/** @type {any} */ entry) => entry.constant);
  const table = (/** @type {HTMLElement[]} */ rows) => h("div", { class: "wide" }, h("table", {}, h("tbody", {}, rows)));
  return h(
    "section",
    { id: "values" },
    set.length ? h("h3", {}, "Set") : null,
    table(set),
    h("h3", {}, answer.rules),
    table(own.map(row)),
    constant.length ? h("details", {}, h("summary", {}, `${constant.length} more that every plan has`), table(constant.map(row))) : null,
  );
}
