// The page that takes a command, a manifest or a log.
import { block, byId, h, setBusy, show, status } from "./dom.js";
import { address } from "./link.js";
import { ask, canRun, start } from "./python.js";
import { findings } from "./result.js";

const MOST = 4_000_000;
let asked = 0;

async function read() {
  const text = byId("text").value;
  const number = ++asked;
  if (text.length > MOST) return status("That is too long for this page: sglang-hydra diagnose FILE reads it in a terminal.");
  status(text.trim() ? "Reading ..." : "");
  setBusy(true);
  let failed = "";
  try {
    const parts = text.trim() ? shown(await ask({ ask: "paste", text })) : [];
    if (number === asked) show(byId("answer"), ...parts);
  } catch (failure) {
    failed = `That cannot be read: ${/** @type {Error} */ (failure).message}`;
  }
  if (number !== asked) return undefined;
  status(failed);
  setBusy(false);
  return undefined;
}

/** @param {any} answer */
function shown({ diagnosis: item, servers, findings: found }) {
  return [
    item ? diagnosis(item, servers[0], explained) : null,
    ...servers.map((/** @type {any} */ each) => server(each, explained)),
    servers.length ? null : findings(withoutRemedies(found), () => {}, explained),
  ];
}

/** @param {any[]} found @returns {any[]} */
function withoutRemedies(found) {
  return found.map((item) => ({ remedies: [], set_by: [], ...item }));
}

/** @param {any} item @param {any} first @param {(id: string) => void} explain */
function diagnosis(item, first, explain) {
  const lines = item.last_lines.map((/** @type {any} */ line) => `${line.number}: ${line.text}`).join("\n");
  return h(
    "section",
    { id: "diagnosis" },
    h("h2", { class: item.healthy ? "yes" : "no" }, item.healthy ? "No failure in this log" : item.kind === "unknown" ? "No known failure" : item.finding.message),
    item.finding ? findings(withoutRemedies([{ ...item.finding, hint: item.remedies.length ? null : item.finding.hint }]), () => {}, explain) : null,
    item.remedies.length ? h("div", {}, h("h3", {}, "What helps"), h("ul", {}, item.remedies.map((/** @type {string} */ remedy) => h("li", {}, remedy)))) : null,
    h("ul", {}, item.notes.map((/** @type {string} */ note) => h("li", { class: "dim" }, note))),
    first ? null : h("details", {}, h("summary", {}, "The last lines"), h("pre", {}, lines)),
  );
}

/** @param {any} item @param {(id: string) => void} explain */
function server(item, explain) {
  const notes = item.arguments.filter((/** @type {any} */ argument) => argument.note || argument.state !== "kept");
  return h(
    "section",
    { class: "server" },
    h("h2", {}, `A server${item.name ? ` (${item.name})` : ""} in ${item.place}`),
    item.command ? h("p", {}, h("a", { class: "go", href: `plan.html${address([{ form: item.form }])}` }, "Plan it")) : null,
    item.command ? block(item.command) : null,
    findings(withoutRemedies(item.findings), () => {}, explain),
    notes.length ? h("div", { class: "wide" }, h("table", {}, h("tbody", {}, notes.map((/** @type {any} */ argument) =>
      h("tr", {}, h("th", { scope: "row" }, argument.name), h("td", {}, JSON.stringify(argument.value)), h("td", {}, argument.state), h("td", { class: "dim" }, argument.note)))))) : null,
    h("h3", {}, "As an experiment"),
    block(item.yaml),
  );
}

/** @param {string} id */
async function explained(id) {
  const made = await ask({ ask: "verb", verb: ["explain", id] });
  show(byId("explained"), h("h3", {}, id), h("pre", { tabindex: 0 }, made.out || made.err));
  const dialog = /** @type {HTMLDialogElement} */ (byId("dialog"));
  if (!dialog.open) dialog.showModal();
}

if (canRun()) {
  start((state) => status(state.ready ? "" : `Python cannot be loaded: ${state.failure}`));
  byId("form").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    read();
  });
  byId("text").addEventListener("change", read);
  byId("text").addEventListener("paste", () => setTimeout(read));
  byId("file").addEventListener("change", async (/** @type {any} */ event) => {
    const [file] = event.target.files;
    if (!file) return;
    byId("text").value = await file.text();
    read();
  });
} else {
  status("This browser has no WebAssembly, so nothing can be read here: sglang-hydra import and sglang-hydra diagnose do the same in a terminal.");
}
