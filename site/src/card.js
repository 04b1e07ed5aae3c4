// Draws a plan as a picture, for where a link of a typed plan cannot have one: 1200 x 630, as chats show it.
import { h } from "./dom.js";
import { headline } from "./result.js";

const WIDE = 1200;
const HIGH = 630;
const MARGIN = 50;

/** Saves a picture of a plan: its verdict, its key figures, its command. @param {Made} answer @param {string} title */
export function drawCard(answer, title) {
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { width: WIDE, height: HIGH }));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const style = getComputedStyle(document.body);
  /** The token as the page shows it now, light or dark. @param {string} name */
  const colour = (name) => {
    const probe = document.body.appendChild(h("i"));
    probe.style.color = `var(--${name})`;
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  /** @param {string} words @param {number} x @param {number} y @param {number} size @param {string} name @param {number} [most] */
  const write = (words, x, y, size, name, most = WIDE - MARGIN - x) => {
    pen.fillStyle = colour(name);
    pen.font = `${size}px ${style.fontFamily}`;
    const wide = pen.measureText(words).width;
    if (wide > most) pen.font = `${Math.max(16, Math.floor((size * most) / wide))}px ${style.fontFamily}`;
    pen.fillText(words, x, y, most);
  };
  pen.fillStyle = colour("card");
  pen.fillRect(0, 0, WIDE, HIGH);
  pen.fillStyle = colour(answer.launch === "unknown" ? "warn" : answer.launch);
  pen.fillRect(0, 0, 14, HIGH);
  write(title, MARGIN, 96, 52, "ink");
  write(headline(answer), MARGIN, 160, 38, answer.launch === "unknown" ? "warn" : answer.launch);
  write(answer.why || answer.room, MARGIN, 212, 28, "dim");
  answer.tiles.slice(0, 4).forEach((tile, place) => {
    const x = MARGIN + (place % 2) * 560;
    const y = 250 + Math.floor(place / 2) * 140;
    pen.fillStyle = colour("panel");
    pen.beginPath();
    pen.roundRect(x, y, 540, 124, 12);
    pen.fill();
    write(tile.label, x + 20, y + 34, 24, "dim", 500);
    write(tile.value, x + 20, y + 78, 42, "ink", 500);
    write(tile.note, x + 20, y + 108, 22, "dim", 500);
  });
  write(answer.commands[0]?.[1] || answer.typed, MARGIN, 572, 26, "ink");
  write(`sglang-hydra, plan ${answer.plan.server_id}`, MARGIN, 606, 20, "dim");
  canvas.toBlob((blob) => {
    if (!blob) return;
    const address = URL.createObjectURL(blob);
    h("a", { href: address, download: `${title.replace(/\W+/g, "-")}.png` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }, "image/png");
}
