const all = (wanted) => [...document.querySelectorAll(wanted)];
const tip = document.getElementById("tip"), points = document.getElementById("points");

// The numbers of a mark, where it is pointed at or reached by keyboard.
for (const mark of all("svg .mark[data-p]")) {
  const title = mark.querySelector("title"), box = () => mark.getBoundingClientRect();
  const words = title.textContent;
  title.remove();
  if (mark.hasAttribute("role")) mark.setAttribute("aria-label", words);
  mark.addEventListener("pointerenter", (event) => show(words, event.clientX, event.clientY, mark.dataset.p));
  mark.addEventListener("focus", () => show(words, box().right, box().bottom, mark.dataset.p));
  mark.addEventListener("pointerleave", hide);
  mark.addEventListener("blur", hide);
}
function show(words, x, y, point) {
  tip.textContent = words;
  tip.hidden = false;
  tip.style.left = `${Math.max(8, Math.min(x + 12, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + 12 + tip.offsetHeight > innerHeight ? Math.max(8, y - 12 - tip.offsetHeight) : y + 12}px`;
  glow(point);
}
function hide() {
  tip.hidden = true;
  glow();
}
function glow(point) {
  for (const part of all(".mark[data-p], tr[data-p]")) part.classList.toggle("hot", part.dataset.p === point);
}
document.addEventListener("keydown", (event) => event.key === "Escape" && hide());

// A click in the legend hides a server everywhere.
for (const button of all(".legend button")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") === "false";
    for (const part of all(`[data-s="${button.dataset.s}"]`)) {
      if (part.matches("button")) part.setAttribute("aria-pressed", String(shown));
      else part.classList.toggle("off", !shown);
    }
  });
}

if (points) {
  const rows = [...points.tBodies[0].rows], heads = [...points.tHead.rows[0].cells];
  const filter = document.getElementById("filter");
  const key = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => sortRows(points, column, key));
    head.addEventListener("keydown", (event) => event.key === "Enter" && sortRows(points, column, key));
  });
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !wanted.every((word) => row.textContent.toLowerCase().includes(word));
  });
  for (const row of rows) {
    row.addEventListener("pointerenter", () => glow(row.dataset.p));
    row.addEventListener("pointerleave", () => glow());
  }
}
