// The page that plans: a form, the plan, what it exports to, a comparison. The address holds all of it.
import { block, byId, copyButton, h, setBusy, show, status } from "./dom.js";
import { address } from "./link.js";
import { ask, canRun, start } from "./python.js";
import { findings, headline, memory, room, values, verdict } from "./result.js";

/** @typedef {Record<string, string>} Form */
/** @typedef {{form: Form, config: string | null, answer?: any}} Plan */

const FIELDS = ["gpu", "count", "model", "release", "users", "more"];
const MOST = 4;
/** @type {Plan[]} */
let compared = [];
/** @type {string | null} */
let config = null;
let asked = 0;

/** @returns {Form} */
function readForm() {
  return Object.fromEntries(FIELDS.map((name) => [name, byId(name).value.trim()]).filter(([, value]) => value));
}

/** @param {Form} form @param {string | null} text */
function fillForm(form, text) {
  for (const name of ["gpu", "release"]) {
    const offered = byId(name);
    const wanted = form[name];
    if (wanted && ![...offered.options].some((option) => option.value === wanted)) offered.append(h("option", {}, wanted));
  }
  for (const name of FIELDS) byId(name).value = form[name] ?? "";
  config = text;
  byId("config-state").textContent = text ? `A config.json of ${text.length.toLocaleString("en")} characters is used.` : "";
  byId("config-clear").hidden = !text;
}

/** The plans that the address names; what is not a plan is left out. @returns {Plan[]} */
function readAddress() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  /** @type {Plan[]} */
  const plans = [];
  for (const written of parameters.getAll("p").slice(0, MOST)) {
    try {
      const { config: text = null, ...form } = JSON.parse(written);
      const known = Object.entries(form).filter(([name, value]) => FIELDS.includes(name) && typeof value === "string");
      plans.push({ form: Object.fromEntries(known), config: typeof text === "string" ? text : null });
    } catch {
      // An address that somebody cut is no plan.
    }
  }
  return plans;
}

/** Makes the plans part of the address. A step back leads to those before, unless they came from there. @param {Plan} own @param {boolean} isStep */
function keepAddress(own, isStep) {
  const to = address([own, ...compared]);
  if (to !== location.hash) history[isStep ? "pushState" : "replaceState"](null, "", to);
}

/** Plans the form. While the answer is awaited the element that shows it is busy. */
async function plan(isStep = true) {
  const own = { form: readForm(), config };
  keepAddress(own, isStep);
  const number = ++asked;
  status("Planning ...");
  setBusy(true);
  let failed = "";
  try {
    const answer = await ask({ ask: "plan", form: own.form, config: own.config });
    if (number === asked) await render({ ...own, answer });
  } catch (failure) {
    failed = `That cannot be planned: ${/** @type {Error} */ (failure).message}`;
  }
  if (number !== asked) return;
  status(failed);
  setBusy(false);
}

/** @param {Plan} own */
async function render(own) {
  const { answer } = own;
  document.title = `${answer.plan ? headline(answer) : "No plan"}: ${own.form.model ?? ""} on ${own.form.gpu ?? ""} - sglang-hydra`;
  const explain = (/** @type {string} */ name) => explained(name, own);
  show(
    byId("answer"),
    verdict(answer),
    answer.screen ? h("pre", {}, answer.screen) : null,
    findings(answer.findings, apply, explain),
    answer.plan ? memory(answer) : null,
    answer.plan ? values(answer, explain) : null,
    answer.plan ? h("section", {}, h("h3", {}, "The hardware's limit"), h("pre", { tabindex: 0 }, answer.limit)) : null,
    answer.plan ? exportsOf(own) : null,
    h("section", {}, h("h3", {}, terminal(answer)), block(answer.typed)),
    actions(own),
  );
  await showComparison(own);
}

/** Above the command line: a release that is not here is asked there. @param {any} answer */
function terminal(answer) {
  if (answer.plan?.basis !== "rules") return "The same in a terminal";
  return `SGLang ${answer.plan.engine.version} itself decides: this is an estimate, and the command line asks that release`;
}

/** @param {string[]} words */
async function apply(words) {
  setBusy(true);
  try {
    const { form } = await ask({ ask: "fill", form: readForm(), add: words });
    fillForm(form, config);
  } catch (failure) {
    setBusy(false);
    return status(`That cannot be planned: ${/** @type {Error} */ (failure).message}`);
  }
  await plan();
  byId("answer").focus();
}

/** @param {string} name @param {Plan} own */
async function explained(name, own) {
  const isId = /^[A-Z]{3}[0-9]{3}$/.test(name);
  const about = isId ? {} : { form: own.form, config: own.config };
  const answer = await ask({ ask: "verb", verb: ["explain", name], ...about });
  show(byId("explained"), h("h3", {}, name), h("pre", { tabindex: 0 }, answer.out || answer.err));
  const dialog = /** @type {HTMLDialogElement} */ (byId("dialog"));
  if (!dialog.open) dialog.showModal();
}

/** @param {Plan} own */
function exportsOf(own) {
  const shown = h("div", { "aria-live": "polite" });
  const buttons = OPTIONS.formats.map((/** @type {{name: string, about: string}} */ format) =>
    h("button", {
      type: "button",
      title: format.about,
      click: async () => {
        const made = await ask({ ask: "verb", verb: ["export", format.name], form: own.form, config: own.config });
        show(shown, made.out ? block(made.out) : null, made.err ? h("pre", {}, made.err) : null);
      },
    }, format.name),
  );
  return h("section", {}, h("h3", {}, "Run it without this package"), h("div", { class: "row" }, buttons), shown);
}

/** @param {Plan} own */
function actions(own) {
  const shown = h("div", { "aria-live": "polite" });
  const comment = h("button", {
    type: "button",
    click: async () => {
      const made = await ask({ ask: "verb", verb: ["check", "--format", "markdown"], form: own.form, config: own.config });
      show(shown, made.out ? block(made.out, "Copy as comment") : h("pre", {}, made.err));
    },
  }, "As a comment");
  const serves = h("button", {
    type: "button",
    click: async () => {
      const { count: _, users, ...form } = own.form;
      const load = users ? [`concurrency=${users}`] : [];
      const made = await ask({ ask: "verb", verb: ["suggest", ...load], form, config: own.config });
      show(shown, h("pre", { tabindex: 0 }, made.out || made.err));
    },
  }, "Plans that serve it");
  const keep = h("button", {
    type: "button",
    disabled: compared.length >= MOST - 1,
    click: () => {
      compared = [...compared, own];
      keepAddress(own, true);
      render(own);
    },
  }, "Keep to compare");
  return h("section", {}, h("div", { class: "row" }, keep, serves, comment, copyButton(location.href, "Copy link")), shown);
}

/** The answer for a kept plan that cannot even be read. @param {Error} failure */
function refused(failure) {
  return { plan: null, words: [], findings: [{ id: "", message: failure.message }] };
}

/** @param {Plan} own */
async function showComparison(own) {
  const place = byId("comparison");
  if (!compared.length) return show(place);
  for (const other of compared) other.answer ??= await ask({ ask: "plan", form: other.form, config: other.config }).catch(refused);
  const plans = [own, ...compared];
  const row = (/** @type {string} */ name, /** @type {(plan: Plan) => any} */ cell) =>
    h("tr", {}, h("th", { scope: "row" }, name), plans.map((each) => h("td", {}, cell(each))));
  const made = (/** @type {(answer: any) => any} */ cell) => (/** @type {Plan} */ each) => (each.answer.plan ? cell(each.answer) : "-");
  const remove = (/** @type {Plan} */ each) =>
    each === own ? "this one" : h("button", { type: "button", click: () => {
      compared = compared.filter((other) => other !== each);
      keepAddress(own, true);
      render(own);
    } }, "Remove");
  return show(
    place,
    h("h2", {}, "Side by side"),
    h("div", { class: "wide" }, h("table", { class: "compare" }, h("tbody", {}, [
      row("Asked for", (each) => each.answer.words.join(" ")),
      row("Verdict", (each) => each.answer.plan ? headline(each.answer) : each.answer.findings[0]?.message ?? "no plan"),
      row("GPUs", made((answer) => answer.gpus)),
      row("Room", made(room)),
      row("Memory", made((answer) => memory(answer, true))),
      row("Findings", (each) => each.answer.findings.map((/** @type {any} */ item) => item.id).join(" ")),
      row("Plan", made((answer) => answer.plan.server_id)),
      row("", remove),
    ]))),
  );
}

async function complete() {
  const input = byId("more");
  const { candidates } = await ask({ ask: "complete", line: `gpu=${byId("gpu").value} ${input.value}` });
  const before = input.value.slice(0, input.value.lastIndexOf(" ") + 1);
  show(byId("more-options"), ...candidates.slice(0, 60).map((/** @type {string} */ word) => h("option", { value: before + word })));
}

/** Adds the presets that the page does not name: those of the user, with sglang-hydra ui --config-dir. */
async function offerPresets() {
  const offered = await ask({ ask: "options" });
  for (const [id, names] of [["gpu", offered.gpus], ["models", offered.models]]) {
    const known = new Set([...byId(id).children].map((option) => option.value));
    byId(id).append(...names.filter((/** @type {string} */ name) => !known.has(name)).map((/** @type {string} */ name) => h("option", { value: name }, name)));
  }
}

/** @param {string} text */
function takeConfig(text) {
  fillForm(readForm(), text.trim() || null);
  plan();
}

function listen() {
  byId("form").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    plan();
  });
  byId("form").addEventListener("change", (/** @type {any} */ event) => {
    if (event.target.id !== "config") plan();
  });
  byId("more").addEventListener("input", complete);
  byId("config").addEventListener("change", (/** @type {any} */ event) => takeConfig(event.target.value));
  byId("config-file").addEventListener("change", async (/** @type {any} */ event) => {
    const [file] = event.target.files;
    if (file) takeConfig(await file.text());
  });
  byId("config-clear").addEventListener("click", () => {
    byId("config").value = "";
    takeConfig("");
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", async (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) takeConfig(await file.text());
  });
  addEventListener("hashchange", restore);
}

function restore() {
  const plans = readAddress();
  if (!plans.length) return false;
  compared = plans.slice(1);
  fillForm(plans[0].form, plans[0].config);
  plan(false);
  return true;
}

const OPTIONS = JSON.parse(byId("options").textContent);
if (canRun()) {
  start((state) => {
    if (!state.ready) status(`Python cannot be loaded: ${state.failure}`);
    byId("form").dataset.ready = String(state.ready);
    if (state.ready) offerPresets();
  });
  listen();
  if (!restore()) plan(false);
} else {
  status("This browser has no WebAssembly, so nothing can be planned here. The catalog has a verdict for each model and GPU.");
}
