// Filters and sorts the matrix, which is in the page already. The address keeps what was chosen.
import { byId, field } from "./dom.js";
import { sortRows } from "./table.js";

const table = /** @type {HTMLTableElement} */ (byId("matrix"));
const rows = [...table.tBodies[0].rows];
const heads = [...(table.tHead?.rows[0].cells ?? [])];
const FIELDS = ["load", "filter", "gpu-filter", "most"];

/** Letters and digits alone: what people write apart, with points or dashes, is one name. @param {string} text */
const flat = (text) => text.toLowerCase().replace(/[^a-z0-9]/g, "");

/** What a name is found by. @param {HTMLTableCellElement} head */
const searched = (head) => `${flat(head.textContent ?? "")} ${flat(head.dataset.search ?? "")}`;

/** Words that tell no two classes or models apart. */
const NOISE = new Set(["gpu", "gpus", "sxm", "sxm4", "sxm5", "the", "model"]);

/**
 * Whether a name has all that was typed: as one name, or each word of it; "80 GB" is one word.
 * @param {string} written @param {string} name
 */
function isNamed(written, name) {
  if (name.includes(flat(written))) return true;
  const words = written.toLowerCase().replace(/(\d+)\s*gi?b\b/g, "$1gb").split(/[^a-z0-9.]+/).map(flat);
  return words.every((word) => !word || NOISE.has(word) || name.includes(word));
}

/** The mark of a cell under the load that is chosen. @param {HTMLTableCellElement} cell */
const mark = (cell) => cell.dataset[field("load").value] ?? "";

/** The number of GPUs in a cell; a pair that nothing serves comes last. @param {HTMLTableCellElement} cell */
const number = (cell) => Number.parseInt(mark(cell), 10) || Infinity;

/** @param {HTMLTableRowElement} row @param {number} column */
const sortKey = ({ cells }, column) => (column ? String(Number.parseInt(mark(cells[column]), 10) || "") : cells[0].textContent ?? "");

function relabel() {
  const load = /** @type {HTMLSelectElement} */ (byId("load")).selectedOptions[0].text;
  for (const row of rows) {
    [...row.cells].slice(1).forEach((cell, index) => {
      const link = cell.querySelector("a");
      if (!link) return;
      const text = mark(cell);
      cell.className = text ? `c${Math.min(16, 2 ** Math.ceil(Math.log2(number(cell))))}` : "none";
      link.textContent = text || "-";
      link.setAttribute("aria-label", `${row.cells[0].textContent} on ${heads[index + 1].textContent}, ${load}: ${text || "none found"}`);
    });
  }
}

function filter() {
  const most = Number(field("most").value) || Infinity;
  const isShown = heads.map((head, index) => index === 0 || isNamed(field("gpu-filter").value, searched(head)));
  heads.forEach((head, index) => (head.hidden = !isShown[index]));
  let count = 0;
  for (const row of rows) {
    const cells = [...row.cells];
    cells.forEach((cell, index) => (cell.hidden = !isShown[index]));
    const isFew = most === Infinity || cells.some((cell, index) => index > 0 && isShown[index] && number(cell) <= most);
    row.hidden = !isNamed(field("filter").value, searched(cells[0])) || !isFew;
    count += row.hidden ? 0 : 1;
  }
  const classes = isShown.filter(Boolean).length - 1;
  byId("shown").textContent = `${count} of ${rows.length} models, ${classes} of ${heads.length - 1} GPU classes`;
  byId("none").hidden = count > 0 && classes > 0;
}

/** Puts what is chosen into the address, without what is as at first. */
function keepAddress() {
  const chosen = new URLSearchParams();
  for (const id of FIELDS) if (field(id).value && field(id).value !== first[id]) chosen.set(id, field(id).value);
  history.replaceState(null, "", `${location.pathname}${chosen.size ? `?${chosen}` : ""}`);
}

/** @param {boolean} [isKept] */
function update(isKept = true) {
  relabel();
  filter();
  if (isKept) keepAddress();
}

const first = Object.fromEntries(FIELDS.map((id) => [id, field(id).value]));

function restore() {
  const chosen = new URLSearchParams(location.search);
  for (const id of FIELDS) {
    field(id).value = chosen.get(id) ?? first[id];
    if (!field(id).value) field(id).value = first[id];
  }
}

const form = /** @type {HTMLFormElement} */ (byId("filters"));
form.addEventListener("input", () => update());
form.addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(update));
byId("reset").addEventListener("click", () => form.reset());
table.tHead?.addEventListener("click", (event) => {
  const button = /** @type {Element} */ (event.target).closest("button");
  if (button) sortRows(table, heads.indexOf(/** @type {HTMLTableCellElement} */ (button.closest("th"))), sortKey);
});
restore();
update(false);
