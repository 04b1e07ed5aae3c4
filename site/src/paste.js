// The page that takes a command, a manifest or a log.
import { block, byId, explain, field, h, setBusy, show, status, table } from "./dom.js";
import { address } from "./link.js";
import { load } from "./loading.js";
import { LoadFailure, ask, canRun } from "./python.js";
import { findings } from "./result.js";

const MOST = 4_000_000;
let asked = 0;

async function read() {
  const text = field("text").value;
  const number = ++asked;
  show(byId("answer")); // what was read of another text says nothing of this one
  if (text.length > MOST) return status("That is too long for this page: sglang-hydra diagnose FILE reads it in a terminal.");
  status(text.trim() ? "Reading ..." : "");
  setBusy(true);
  let failed = "";
  try {
    const parts = text.trim() ? shown(await ask({ ask: "paste", text })) : [];
    if (number === asked) show(byId("answer"), ...parts);
  } catch (failure) {
    failed = failure instanceof LoadFailure ? "" : `That cannot be read: ${/** @type {Error} */ (failure).message}`;
  }
  if (number !== asked) return undefined;
  status(failed);
  setBusy(false);
  return undefined;
}

/** @param {PasteAnswer} answer */
function shown({ diagnosis: item, servers, findings: found }) {
  return [
    item ? diagnosis(item, servers.length > 0) : null,
    ...servers.map(server),
    servers.length ? null : findings(found, () => {}, explained),
  ];
}

/** @param {Diagnosis} item @param {boolean} hasServer */
function diagnosis(item, hasServer) {
  const lines = item.last_lines.map((line) => `${line.number}: ${line.text}`).join("\n");
  const title = item.healthy ? "No failure in this log" : item.kind === "unknown" || !item.finding ? "No known failure" : item.finding.message;
  return h(
    "section",
    { id: "diagnosis", class: `card ${item.healthy ? "yes" : "no"}` },
    h("h2", { class: item.healthy ? "yes" : "no" }, title),
    item.finding ? findings([{ ...item.finding, hint: item.remedies.length ? null : item.finding.hint }], () => {}, explained) : null,
    item.remedies.length ? h("div", {}, h("h3", {}, "What helps"), h("ul", {}, item.remedies.map((remedy) => h("li", {}, remedy)))) : null,
    h("ul", {}, item.notes.map((note) => h("li", { class: "dim" }, note))),
    hasServer ? null : h("details", {}, h("summary", {}, "The last lines"), h("pre", {}, lines)),
  );
}

/** @param {PastedServer} item */
function server(item) {
  const notes = item.arguments.filter((argument) => argument.note || argument.state !== "kept");
  return h(
    "section",
    { class: "server" },
    h("h2", {}, `A server${item.name ? ` (${item.name})` : ""} in ${item.place}`),
    item.command ? h("p", {}, h("a", { class: "go", href: `plan.html${address([{ form: item.form, config: null }])}` }, item.form.gpu ? `Plan it on ${item.form.gpu}` : "Plan it"), item.form.gpu ? null : " Choose the GPU there: nothing here names one.") : null,
    item.command ? block(item.command) : null,
    findings(item.findings, () => {}, explained),
    notes.length ? table(notes.map((argument) =>
      h("tr", {}, h("th", { scope: "row" }, argument.name), h("td", {}, argument.shown), h("td", {}, argument.state), h("td", { class: "dim" }, argument.note)))) : null,
    h("h3", {}, "As an experiment"),
    block(item.yaml),
  );
}

/** @param {string} id */
async function explained(id) {
  /** @type {VerbAnswer} */
  const made = await ask({ ask: "verb", verb: ["explain", id] });
  explain(id, made.out || made.err);
}

if (canRun()) {
  load(() => status(""), read);
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    read();
  });
  byId("text").addEventListener("change", read);
  byId("text").addEventListener("paste", () => setTimeout(read));
  byId("file").addEventListener("change", async () => {
    const [file] = field("file").files ?? [];
    if (!file) return;
    field("text").value = await file.text();
    read();
  });
} else {
  status("This browser has no WebAssembly, so nothing can be read here: sglang-hydra import and sglang-hydra diagnose do the same in a terminal.");
}
