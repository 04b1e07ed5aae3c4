// Shows a plan that Python made.
import { memoryBar, slug } from "./bar.js";
import { block, h, table } from "./dom.js";

const LEVELS = ["error", "warning", "info"];
const BADGES = { yes: "fits", no: "refused", unknown: "unknown", short: "too little capacity" };

/**
 * What comes first: the verdict, the key figures, the command of each node.
 * @param {Answer} answer
 */
export function verdict(answer) {
  if (!answer.plan) return h("h2", { class: "no", id: "verdict" }, answer.screen ? "Several servers" : "No plan can be made");
  const kind = answer.short && answer.launch === "yes" ? "short" : answer.launch;
  return h(
    "section",
    { class: `card ${kind}` },
    h("p", { class: "badge" }, BADGES[kind]),
    h("h2", { id: "verdict" }, headline(answer)),
    h("p", { id: "why" }, [answer.short && answer.launch === "yes" ? answer.short : "", answer.why].filter(Boolean).join("; ") || "No problems found"),
    h("dl", { class: "tiles" }, answer.tiles.map((tile) =>
      h("div", {}, h("dt", {}, tile.label), h("dd", {}, h("strong", {}, tile.value), tile.note ? h("span", { class: "dim" }, tile.note) : null)))),
    h("p", { id: "room" }, `${answer.gpus}: ${room(answer)}`),
    answer.commands.length ? answer.commands.flatMap(([label, command]) => [label ? h("p", { class: "node" }, label) : null, command ? block(command) : null]) : h("p", {}, "There is no command for it."),
    h("p", { class: "note" }, "Plan ", h("code", { id: "server-id" }, answer.plan.server_id)),
  );
}

/** @param {Made} answer */
export function headline(answer) {
  if (answer.launch === "yes" && answer.short) return `Can be launched, with too little capacity: ${answer.by}`;
  const words = { yes: "Can be launched", no: "Cannot be launched", unknown: "Unknown whether it can be launched" };
  return `${words[answer.launch]}: ${answer.by}`;
}

/** @param {Made} answer */
export function room(answer) {
  const fit = answer.plan.fit;
  if (!fit || fit.left_gib === null) return answer.room;
  const error = fit.error_gib === null ? "" : ` (within ${fit.error_gib.toFixed(1)})`;
  const left = fit.left_gib < 0 ? `${(-fit.left_gib).toFixed(1)} GiB are missing` : `${fit.left_gib.toFixed(1)} GiB are left`;
  return `${answer.room}; ${left} on each GPU${error}`;
}

/**
 * The memory of one GPU as a picture, and its table where there is room for it.
 * @param {Made} answer
 * @param {boolean} [isBarAlone]
 */
export function memory(answer, isBarAlone = false) {
  const { fit } = answer.plan;
  if (!answer.memory.length || !fit?.memory_gib) return null;
  const bar = document.importNode(new DOMParser().parseFromString(memoryBar(answer.memory, fit), "image/svg+xml").documentElement, true);
  if (isBarAlone) return bar;
  const body = answer.memory.map(([name, size, note]) =>
    h("tr", {}, h("th", { scope: "row" }, h("span", { class: `key ${slug(name)}` }), name), h("td", { class: "number" }, size), h("td", {}, note)),
  );
  return h("section", {}, h("h3", {}, "Memory of one GPU, GiB"), bar, table(body));
}

/** The hardware's limit: its figures, and how they are made on demand. @param {Made} answer */
export function limit(answer) {
  const rows = answer.limits.map(([name, value, why]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, value), h("td", { class: "dim" }, why)));
  return h(
    "section",
    { id: "limit" },
    h("h3", {}, "The hardware's limit"),
    rows.length ? table(rows) : null,
    h("details", { open: rows.length === 0 }, h("summary", {}, "How it is computed"), h("pre", { tabindex: 0 }, answer.limit)),
  );
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
  const remedies = (item.remedies ?? []).map((remedy) =>
    h("li", {}, h("button", { type: "button", class: "remedy", click: () => apply(remedy.words) }, remedy.words.join(" ")), ` ${remedy.note.replace(/^: /, "")}`),
  );
  return h(
    "li",
    { class: item.level },
    h("strong", {}, item.level),
    " ",
    item.id ? h("button", { type: "button", class: "link", click: () => explain(item.id) }, item.id) : null,
    " ",
    item.message,
    (item.set_by ?? []).map((line) => h("div", { class: "dim" }, line)),
    remedies.length ? h("div", {}, "What helps:", h("ul", {}, remedies)) : null,
    !remedies.length && item.hint ? h("div", { class: "hint" }, item.hint) : null,
  );
}

/**
 * What was set and what the rules made of it; a click on a name explains it.
 * @param {Made} answer
 * @param {(name: string) => void} explain
 */
export function values(answer, explain) {
  const link = (/** @type {string} */ name) => h("button", { type: "button", class: "link", click: () => explain(name) }, name);
  const set = answer.set.map(([, name, value, who]) => h("tr", {}, h("th", { scope: "row" }, link(name)), h("td", {}, value), h("td", { class: "dim" }, who ?? "")));
  const row = (/** @type {{cells: string[]}} */ { cells: [mark, name, change, rule, reason] }) =>
    h("tr", { class: mark === "!" ? "warning" : "" }, h("th", { scope: "row" }, link(name)), h("td", {}, change), h("td", {}, link(rule)), h("td", { class: "dim" }, reason));
  const own = answer.changed.filter((entry) => !entry.constant);
  const constant = answer.changed.filter((entry) => entry.constant);
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
