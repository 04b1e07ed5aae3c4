// Makes elements. Data becomes text nodes and attributes alone, never HTML.

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Makes an element. An attribute that is a function listens to the event of its name; true is an empty attribute, and
 * null or false none.
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null | ((event: any) => void)>} [attributes]
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

/** The element with this id. @param {string} id @returns {any} */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`no element #${id}`);
  return element;
}

/** Writes the line above the answer. @param {string} message */
export function status(message) {
  byId("status").textContent = message;
}

/** Whether the answer that is shown is about to be replaced. @param {boolean} isBusy */
export function setBusy(isBusy) {
  byId("answer").setAttribute("aria-busy", String(isBusy));
}

/** A button that copies `content`. @param {string} content @param {string} [label] */
export function copyButton(content, label = "Copy") {
  return h("button", {
    type: "button",
    click: async (/** @type {any} */ event) => {
      await navigator.clipboard.writeText(content);
      event.target.textContent = "Copied";
      setTimeout(() => (event.target.textContent = label), 1500);
    },
  }, label);
}

/** Text that is to be copied: a block with a button. @param {string} content @param {string} [label] */
export function block(content, label) {
  return h("div", { class: "block" }, copyButton(content, label), h("pre", { tabindex: 0 }, content));
}
