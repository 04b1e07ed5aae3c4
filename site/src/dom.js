// Makes elements. Data becomes text nodes and attributes alone, never HTML.

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Makes an element. An attribute that is a function listens to the event of its name; true is an empty attribute, and
 * null or false none.
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null | ((event: Event) => void)>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter(isShown).map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

/** @param {Child} child @returns {child is Node | string | number} */
function isShown(child) {
  return child !== null && child !== undefined && child !== false;
}

/** Puts `children` in place of what `element` holds. @param {Element} element @param {...Child} children */
export function show(element, ...children) {
  element.replaceChildren(...children.filter(isShown).map((child) => (child instanceof Node ? child : String(child))));
}

/** The element with this id. @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`no element #${id}`);
  return element;
}

/** The field with this id. @param {string} id */
export function field(id) {
  return /** @type {HTMLInputElement} */ (byId(id));
}

/** Writes the line above the answer, which screen readers read. @param {string} message */
export function status(message) {
  byId("status").textContent = message;
}

/** Whether the answer that is shown is about to be replaced. @param {boolean} isBusy */
export function setBusy(isBusy) {
  byId("answer").setAttribute("aria-busy", String(isBusy));
}

/** Opens the dialog that explains. @param {string} title @param {string} text */
export function explain(title, text) {
  show(byId("explained"), h("h3", {}, title), h("pre", { tabindex: 0 }, text));
  const dialog = /** @type {HTMLDialogElement} */ (byId("dialog"));
  if (!dialog.open) dialog.showModal();
}

/** A table in a frame that scrolls by itself. @param {Child[]} rows @param {string[]} [titles] */
export function table(rows, titles) {
  const head = titles ? h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)))) : null;
  return h("div", { class: "wide" }, h("table", { class: "stack" }, head, h("tbody", {}, rows)));
}

/** A button that copies `content`. @param {string | (() => string)} content @param {string} [label] */
export function copyButton(content, label = "Copy") {
  return h("button", {
    type: "button",
    click: async (event) => {
      const button = /** @type {HTMLElement} */ (event.target);
      await navigator.clipboard.writeText(typeof content === "string" ? content : content());
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = label), 1500);
    },
  }, label);
}

/** Text that is to be copied: a block with a button. @param {string} content @param {string} [label] */
export function block(content, label) {
  return h("div", { class: "block" }, copyButton(content, label), h("pre", { tabindex: 0 }, content));
}
