// Says how far Python is, and what to do where it does not come.
import { byId, h, show, status } from "./dom.js";
import { onState, start } from "./python.js";

const MB = 1e6;

/** Loads Python and says so. @param {() => void} [onReady] @param {() => void} [again] what "Try again" does */
export function load(onReady, again) {
  const total = Number(byId("status").dataset.total);
  let isReady = false;
  onState((state) => {
    if (state.ready === false) return trouble(state.failure ?? "", again);
    if (state.ready) {
      isReady = true;
      show(byId("trouble"));
      if (state.kept) navigator.serviceWorker?.register(new URL("../sw.js", import.meta.url)).catch(() => {});
      return onReady?.();
    }
    if (state.release) return status(releaseLine(state.release));
    if (isReady) return undefined;
    if (state.slow) return status("Nothing has come for 8 seconds; still waiting for Python. The catalog does without.");
    const part = Math.min(1, (state.loaded ?? 0) / total);
    return status(part < 1 ? `Loading Python: ${Math.round(part * 100)} % of ${Math.round(total / MB)} MB` : "Starting Python");
  });
  start();
}

/** @param {{loaded: number, total: number}} release */
function releaseLine({ loaded, total }) {
  const part = loaded / total;
  return part < 1 ? `This plan is not recorded. Loading SGLang's own argument code: ${Math.round(part * 100)} % of ${(total / MB).toFixed(1)} MB` : "Starting SGLang's own argument code";
}

/** @param {string} failure @param {(() => void)} [again] */
function trouble(failure, again) {
  status("");
  show(
    byId("trouble"),
    h("div", { class: "trouble" },
      h("strong", {}, `Python cannot be loaded: ${failure}.`),
      " This site's own files have to come through, whatever blocks scripts or filters downloads on the way. ",
      h("a", { href: "catalog.html" }, "The catalog"),
      " has a verdict for each model and GPU without it, and sglang-hydra in a terminal needs no browser. ",
      h("button", { type: "button", click: () => { show(byId("trouble")); start(); again?.(); } }, "Try again")),
  );
}
