// Filters and sorts the matrix, which is in the page already.
import { byId } from "./dom.js";

const table = byId("matrix");
/** @type {HTMLTableRowElement[]} */
const rows = [...table.tBodies[0].rows];
/** @type {HTMLTableCellElement[]} */
const heads = [...table.tHead.rows[0].cells];
let sorted = "";
let isReversed = false;

/** The number of GPUs in a cell; a pair that nothing serves comes last. @param {HTMLTableCellElement} cell */
function number(cell) {
  return Number(cell.dataset.n) || Infinity;
}

function filter() {
  const model = byId("filter").value.trim().toLowerCase();
  const gpu = byId("gpu-filter").value.trim().toLowerCase();
  const most = Number(byId("most").value) || Infinity;
  const isShown = heads.map((head, index) => index === 0 || (head.textContent ?? "").includes(gpu));
  heads.forEach((head, index) => (head.hidden = !isShown[index]));
  let count = 0;
  for (const row of rows) {
    const cells = [...row.cells];
    cells.forEach((cell, index) => (cell.hidden = !isShown[index]));
    const isFew = most === Infinity || cells.some((cell, index) => index > 0 && isShown[index] && number(cell) <= most);
    row.hidden = !(cells[0].textContent ?? "").toLowerCase().includes(model) || !isFew;
    count += row.hidden ? 0 : 1;
  }
  byId("shown").textContent = `${count} of ${rows.length} models`;
}

/** @param {string} gpu */
function sort(gpu) {
  isReversed = gpu === sorted && !isReversed;
  sorted = gpu;
  const column = gpu ? heads.findIndex((head) => head.textContent === gpu) : 0;
  const ordered = rows.map((row, index) => ({ row, index, key: column ? number(row.cells[column]) : index }));
  ordered.sort((a, b) => a.key - b.key || a.index - b.index);
  if (isReversed) ordered.reverse();
  table.tBodies[0].append(...ordered.map((each) => each.row));
  heads.forEach((head, index) => head.setAttribute("aria-sort", index === column ? (isReversed ? "descending" : "ascending") : "none"));
}

for (const name of ["filter", "gpu-filter", "most"]) byId(name).addEventListener("input", filter);
table.tHead.addEventListener("click", (/** @type {any} */ event) => {
  const button = event.target.closest("button");
  if (button) sort(button.dataset.sort);
});
filter();
