/**
 * Sorts a table by a column, the other way where it is sorted by it; what has no value is last. The catalog's and a
 * report's.
 * @param {HTMLTableElement} table @param {number} column
 * @param {(row: HTMLTableRowElement, column: number) => string} keyOf a number or text
 */
export function sortRows(table, column, keyOf) {
  const heads = [...(table.tHead?.rows[0].cells ?? [])];
  const body = table.tBodies[0];
  const way = heads[column].getAttribute("aria-sort") === "ascending" ? -1 : 1;
  heads.forEach((head, place) => head.setAttribute("aria-sort", place !== column ? "none" : way === 1 ? "ascending" : "descending"));
  const keyed = [...body.rows].map((row) => ({ row, key: keyOf(row, column) }));
  keyed.sort(({ key: a }, { key: b }) => {
    const byValue = isNaN(Number(a)) || isNaN(Number(b)) ? a.localeCompare(b) : Number(a) - Number(b);
    return Number(a === "") - Number(b === "") || way * byValue;
  });
  body.append(...keyed.map(({ row }) => row));
}
