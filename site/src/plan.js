// The page that plans: a form, the plan, what it exports to, a comparison. The address holds all of it.
import { block, byId, copyButton, explain, field, h, setBusy, show, status } from "./dom.js";
import { HUB, fetchConfig } from "./hub.js";
import { drawCard } from "./card.js";
import { MOST, address, eachField, formOf, readAddress, unpinned } from "./link.js";
import { load } from "./loading.js";
import { LoadFailure, ask, canRun } from "./python.js";
import { findings, headline, limit, memory, room, values, verdict } from "./result.js";

const TYPING_MS = 500;
/** @type {Plan[]} */
let compared = [];
/** @typedef {import("./link.js").Pin} Pin */
/** @type {string | null} */
let config = null;
/** Where the config came from, where that is not the user's own text. */
let configFrom = "";
let asked = 0;
/** The addresses of the plan that was asked for last, and of the one whose answer is on the page. */
let askedFor = "";
let shownFor = "";
let typing = 0;
let isEditing = false;
/** What a link keeps of its answer, and the address of its plan, until that is answered. @type {{pin: Pin, of: string} | null} */
let linked = null;
const comparison = byId("comparison");

/** @returns {Plan} */
const current = () => ({ form: formOf((name) => field(name).value), config });

/** @param {Form} form @param {string | null} text @param {string} [from] */
function fillForm(form, text, from = "") {
  const release = byId("release");
  if (form.release && ![.../** @type {HTMLSelectElement} */ (release).options].some((option) => option.value === form.release)) release.append(h("option", {}, form.release));
  eachField((name) => (field(name).value = form[name] ?? ""));
  config = text;
  configFrom = text ? from : "";
  byId("config-state").textContent = text ? `A config.json of ${text.length.toLocaleString("en")} characters${from && ` from ${from}`} is used.` : "";
  byId("config-clear").hidden = !text;
}

/** Makes the plans part of the address. A step back leads to those before, unless they came from there. @param {Plan} own @param {boolean} isStep */
function keepAddress(own, isStep) {
  const to = address([own, ...compared]);
  if (to !== unpinned(location.hash)) history[isStep ? "pushState" : "replaceState"](null, "", to);
}

/** Greys what is shown for other input than the form now has; nothing of it can be clicked or copied. */
function outdate() {
  const isStale = address([current()]) !== shownFor;
  const answer = byId("answer");
  answer.classList.toggle("stale", isStale);
  answer.inert = isStale;
}

/** Plans the form. While the answer is awaited the element that shows it is busy. @param {boolean} [isStep] */
async function plan(isStep = true) {
  clearTimeout(typing);
  const own = current();
  keepAddress(own, isStep);
  askedFor = address([own]);
  const number = ++asked;
  outdate();
  status("Planning ...");
  setBusy(true);
  try {
    const answer = await ask({ ask: "plan", form: own.form, config: own.config });
    if (number !== asked) return;
    await render({ ...own, answer });
    if (number !== asked) return;
    settle(own, "");
    if (linked?.of === address([own])) sayDifference(linked.pin, answer);
    linked = null;
    history.replaceState(null, "", address([own, ...compared], pinOf(answer)));
  } catch (failure) {
    if (number === asked) refuse(own, /** @type {Error} */ (failure));
  }
}

/** @param {Answer} answer @returns {Pin | null} */
const pinOf = ({ plan: made, ...answer }) =>
  made && "by" in answer ? { release: made.engine.version, id: made.server_id, said: headline({ plan: made, ...answer }), day: new Date().toISOString().slice(0, 10) } : null;

/** Says that a link was made of another answer. @param {Pin} then @param {Answer} answer */
function sayDifference(then, answer) {
  const now = pinOf(answer);
  if (then.id === now?.id && then.said === now.said) return;
  const today = now ? `"${now.said}" (plan ${now.id})` : "no plan";
  byId("notice").append(h("p", { class: "trouble", id: "differs" }, `Today's answer is another than that of this link. On ${then.day}, SGLang ${then.release}: "${then.said}" (plan ${then.id}). Today: ${today}. The planner has changed since, or its presets.`));
}

/**
 * A link that others see with a picture: that of the catalog's page of this model and GPU, which leads here.
 * @param {Answer} answer
 */
function linkTo(answer) {
  const named = (/** @type {string} */ key) => answer.words.find((word) => word.startsWith(`${key}=`))?.slice(key.length + 1) ?? "";
  const hasPage = OPTIONS.paired.models.includes(named("model")) && OPTIONS.paired.gpus.includes(named("gpu"));
  return new URL(`${hasPage ? `fit/${named("model")}/${named("gpu")}.html` : "plan.html"}${location.hash}`, location.href).href;
}

/** @param {Plan} own @param {string} message */
function settle(own, message) {
  shownFor = address([own]);
  outdate();
  status(message);
  setBusy(false);
}

/** Nothing of another plan stays beside what cannot be planned. @param {Plan} own @param {Error} failure */
function refuse(own, failure) {
  const isLoad = failure instanceof LoadFailure;
  if (!isLoad || address([own]) !== shownFor) {
    document.title = "No plan - sglang-hydra";
    show(byId("answer"), isLoad ? null : h("section", { class: "card no" }, h("h2", { class: "no", id: "verdict" }, "Nothing is planned"), h("p", {}, failure.message)));
  }
  settle(own, isLoad ? "" : `That cannot be planned: ${failure.message}`);
}

/** @param {Plan} own */
async function render(own) {
  const { answer } = own;
  if (!answer) return;
  const title = answer.plan ? headline(answer) : "No plan";
  document.title = `${title}: ${own.form.model ?? ""} on ${own.form.gpu ?? ""} - sglang-hydra`;
  byId("announce").textContent = title;
  const about = (/** @type {string} */ name) => explained(name, own);
  const parts = answer.plan ? [memory(answer), values(answer, about), limit(answer), exportsOf(own)] : [];
  show(
    byId("answer"),
    answer.taken.length ? h("p", { class: "note" }, answer.taken.map(({ typed, name }) => `${typed} is taken for ${name}. `)) : null,
    verdict(answer),
    comparison,
    answer.screen ? h("pre", {}, answer.screen) : null,
    answer.plan && answer.hub ? offer(answer.hub) : null,
    findings(answer.findings, apply, about),
    ...parts,
    h("section", {}, h("h3", {}, terminal(answer)), block(answer.typed)),
    actions(own),
  );
  await showComparison(own);
}

/** Above the command line: a release that is not here is asked there. @param {Answer} answer */
function terminal(answer) {
  if (answer.plan?.basis !== "rules") return "The same in a terminal";
  return `SGLang ${answer.plan.engine.version} itself decides: this is an estimate, and the command line asks that release`;
}

/** What to do about a model that no preset knows. @param {string} id */
function offer(id) {
  const said = h("p", { class: "no", role: "alert" });
  const button = h("button", {
    type: "button",
    class: "go",
    click: async () => {
      show(said);
      button.setAttribute("disabled", "");
      try {
        fillForm(current().form, await fetchConfig(id), HUB);
        await plan();
      } catch (failure) {
        show(said, `${/** @type {Error} */ (failure).message}. Paste the file above instead.`);
        button.removeAttribute("disabled");
      }
    },
  }, `Fetch its config.json from ${HUB}`);
  return h(
    "section",
    { id: "hub", class: "card unknown" },
    h("h3", {}, `No preset has ${id}`),
    h("p", {}, `Its config.json says the sizes that decide. It is a small file, of 1 to 10 kB as a rule; a click asks ${HUB} for it, and for nothing else. Or open "A config.json of your own" above and paste it, or drop the file on this page.`),
    button,
    said,
  );
}

/** @param {string[]} words */
async function apply(words) {
  const own = current();
  setBusy(true);
  try {
    const { form } = await ask({ ask: "fill", form: own.form, add: words });
    fillForm(form, config, configFrom);
  } catch (failure) {
    return refuse(own, /** @type {Error} */ (failure));
  }
  await plan();
  return byId("answer").focus();
}

/** @param {string} name @param {Plan} own */
async function explained(name, own) {
  const isId = /^[A-Z]{3}[0-9]{3}$/.test(name);
  const about = isId ? {} : { form: own.form, config: own.config };
  /** @type {VerbAnswer} */
  const answer = await ask({ ask: "verb", verb: ["explain", name], ...about });
  explain(name, answer.out || answer.err);
}

/** A button that shows what a verb prints. @param {Element} place @param {string} label @param {Record<string, unknown>} question @param {{title?: string, copy?: string}} [how] */
function verb(place, label, question, { title, copy } = {}) {
  const click = async () => {
    /** @type {VerbAnswer} */
    const made = await ask({ ask: "verb", ...question });
    show(place, copy && made.out ? block(made.out, copy) : h("pre", { tabindex: 0 }, made.out || made.err));
  };
  return h("button", { type: "button", title: title ?? null, click }, label);
}

/** @param {Plan} own */
function exportsOf({ form, config: text }) {
  const shown = h("div", { "aria-live": "polite" });
  const buttons = OPTIONS.formats.map(({ name, about }) =>
    verb(shown, name, { verb: ["export", name], form, config: text }, { title: about, copy: "Copy" }));
  return h("section", {}, h("h3", {}, "Export"), h("div", { class: "row" }, buttons), shown);
}

/** @param {Plan} own */
function actions(own) {
  const { form, config: text } = own;
  const shown = h("div", { "aria-live": "polite" });
  const comment = verb(shown, "As a comment", { verb: ["check", "--format", "markdown"], form, config: text }, { copy: "Copy as comment" });
  const { count: _, ...load } = form;
  const serves = verb(shown, "Plans that serve it", { verb: ["suggest"], form: load, config: text });
  const keep = h("button", {
    type: "button",
    disabled: compared.length >= MOST - 1,
    click: () => {
      compared = [...compared, own];
      keepAddress(own, true);
      render(own);
    },
  }, "Keep to compare");
  const { answer } = own;
  const share = answer && [
    copyButton(() => linkTo(answer), "Copy link"),
    answer.plan ? h("button", { type: "button", click: () => drawCard(answer, `${form.model ?? "a model"} on ${form.gpu ?? "this GPU"}`) }, "Save as picture") : null,
  ];
  return h("section", {}, h("div", { class: "row" }, keep, serves, comment, ...(share ?? [])), shown);
}

/** The answer for a kept plan that cannot even be read. @param {Error} failure @returns {Refused} */
function unread(failure) {
  return { plan: null, words: [], typed: "", taken: [], findings: [{ id: "", level: "error", message: failure.message, hint: null }] };
}

/** @param {Plan} own */
async function showComparison(own) {
  if (!compared.length) return show(comparison);
  for (const other of compared) other.answer ??= await ask({ ask: "plan", form: other.form, config: other.config }).catch(unread);
  const plans = [own, ...compared];
  const row = (/** @type {string} */ name, /** @type {(answer: Answer) => string} */ cell) => {
    const cells = plans.map(({ answer }) => (answer ? cell(answer) : ""));
    const differs = new Set(cells).size > 1;
    return h("tr", { class: differs ? "differs" : null }, h("th", { scope: "row" }, name), cells.map((text) => h("td", {}, text)));
  };
  const made = (/** @type {(answer: Made) => string} */ cell) => (/** @type {Answer} */ answer) => (answer.plan ? cell(answer) : "-");
  const remove = (/** @type {Plan} */ each) =>
    each === own ? "this one" : h("button", { type: "button", click: () => {
      compared = compared.filter((other) => other !== each);
      keepAddress(own, true);
      render(own);
    } }, "Remove");
  const same = new Set(plans.map(({ answer }) => answer?.words ?? []).reduce((all, words) => all.filter((word) => words.includes(word))));
  const tiles = [...new Set(plans.flatMap(({ answer }) => (answer?.plan ? answer.tiles.map((tile) => tile.label) : [])))];
  return show(
    comparison,
    h("h2", {}, "Side by side"),
    same.size ? h("p", { class: "note" }, `All of them: ${[...same].join(" ")}`) : null,
    h("div", { class: "wide" }, h("table", { class: "compare" }, h("tbody", {}, [
      row("Asked for", (answer) => answer.words.filter((word) => !same.has(word)).join(" ") || "as all"),
      row("Verdict", (answer) => answer.plan ? headline(answer) : answer.findings[0]?.message ?? "no plan"),
      row("GPUs", made((answer) => answer.gpus)),
      row("Capacity", made(room)),
      ...tiles.map((label) => row(label, made((answer) => answer.tiles.find((tile) => tile.label === label)?.value ?? "-"))),
      h("tr", {}, h("th", { scope: "row" }, "Memory"), plans.map(({ answer }) => h("td", {}, answer?.plan ? memory(answer, true) : "-"))),
      row("Findings", (answer) => answer.findings.map((item) => item.id).join(" ")),
      row("Plan", made((answer) => answer.plan.server_id)),
      h("tr", {}, h("th", { scope: "row" }, ""), plans.map((each) => h("td", {}, remove(each)))),
    ]))),
  );
}

async function complete() {
  const { value } = field("more");
  /** @type {{candidates: string[]}} */
  const { candidates } = await ask({ ask: "complete", line: `gpu=${field("gpu").value} ${value}` });
  const before = value.slice(0, value.lastIndexOf(" ") + 1);
  show(byId("more-options"), ...candidates.slice(0, 60).map((word) => h("option", { value: before + word })));
}

/** Adds the presets that the page does not name: those of the user, with sglang-hydra ui --config-dir. */
async function offerPresets() {
  /** @type {{gpus: string[], models: string[]}} */
  const offered = await ask({ ask: "options" });
  for (const [id, names] of Object.entries(offered)) {
    const list = /** @type {HTMLDataListElement} */ (byId(id));
    const known = new Set([...list.options].map((option) => option.value));
    list.append(...names.filter((name) => !known.has(name)).map((name) => h("option", { value: name }, name)));
  }
}

/** @param {string} text */
function takeConfig(text) {
  fillForm(current().form, text.trim() || null);
  plan();
}

/** @param {FileList | null | undefined} files */
async function takeFile(files) {
  if (files?.[0]) takeConfig(await files[0].text());
}

function listen() {
  const form = byId("form");
  const isConfig = (/** @type {Event} */ event) => /** @type {HTMLElement} */ (event.target).id.startsWith("config");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    isEditing = false;
    plan();
  });
  form.addEventListener("input", (event) => {
    if (isConfig(event)) return;
    outdate();
    clearTimeout(typing);
    typing = setTimeout(() => {
      plan(!isEditing);
      isEditing = true;
    }, TYPING_MS);
  });
  form.addEventListener("change", (event) => {
    if (isConfig(event)) return;
    isEditing = false;
    if (address([current()]) !== askedFor) plan();
  });
  byId("more").addEventListener("input", () => complete().catch(() => {}));
  byId("config").addEventListener("change", () => takeConfig(field("config").value));
  byId("config-file").addEventListener("change", () => takeFile(field("config-file").files));
  byId("config-clear").addEventListener("click", () => {
    field("config").value = "";
    takeConfig("");
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    takeFile(event.dataTransfer?.files);
  });
  addEventListener("hashchange", restore);
}

/** Shows what the address names, and says what of it cannot be read. Returns whether it names anything. */
function restore() {
  const { plans, wrong, pin } = readAddress(location.hash);
  show(byId("notice"), wrong.length ? h("p", { class: "trouble" }, `This link was cut or changed: ${wrong.join("; ")}.`, plans.length ? "" : " Ask for the whole link, or fill in the form.") : null);
  if (plans.length) {
    compared = plans.slice(1);
    const { form, config: text } = plans[0];
    fillForm(pin && !form.release ? { ...form, release: pin.release } : form, text);
    linked = pin && { pin, of: address([current()]) };
    plan(false);
  } else if (wrong.length) {
    asked++;
    show(byId("answer"));
    settle(current(), "");
  }
  return plans.length > 0 || wrong.length > 0;
}

/** @type {{formats: {name: string, about: string}[], paired: {models: string[], gpus: string[]}}} */
const OPTIONS = JSON.parse(byId("options").textContent ?? "");
if (canRun()) {
  if (byId("answer").childElementCount) shownFor = address([current()]);
  load(() => {
    byId("form").dataset.ready = "true";
    offerPresets();
  }, () => plan(false));
  listen();
  if (!restore()) plan(false);
} else {
  status("This browser has no WebAssembly, so nothing can be planned here. The catalog has a verdict for each model and GPU.");
}
