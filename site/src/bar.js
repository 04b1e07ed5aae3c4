// The memory of a GPU as a picture. It is text, so that the build draws the same (draw.js).

const WIDE = 1000;
const HIGH = 30;

/** The class of a part. @param {string} name */
export const slug = (name) => `m-${name.toLowerCase().replace(/[^a-z]+/g, "-")}`;

/** @param {string} text */
const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** @param {string} kind @param {number} x @param {number} width @param {string} title @param {number} [high] */
const rect = (kind, x, width, title, high = HIGH) =>
  `<rect class="${kind}" x="${+x.toFixed(1)}" width="${+width.toFixed(1)}" y="${HIGH - high}" height="${high}"><title>${escaped(title)}</title></rect>`;

/**
 * An SVG: the parts, the end of the GPU's memory, and how far the sum may be off. Sizes are in GiB.
 * @param {string[][]} rows the name, the size and a note of each part, and of what is left
 * @param {{memory_gib: number | null, left_gib?: number | null, error_gib?: number | null}} fit
 */
export function memoryBar(rows, { memory_gib, left_gib = null, error_gib = null }) {
  const size = memory_gib ?? 0;
  const parts = rows.map(([name, amount]) => ({ name, amount: amount.trim() })).filter(({ name, amount }) => name !== "left" && Number(amount) > 0);
  const scale = WIDE / Math.max(size, parts.reduce((sum, part) => sum + Number(part.amount), 0));
  let x = 0;
  const drawn = parts.map(({ name, amount }) => {
    const width = scale * Number(amount);
    x += width;
    return rect(slug(name), x - width, width, `${name} ${amount} GiB`);
  });
  if (error_gib && left_gib !== null) {
    const from = Math.max(0, scale * (size - left_gib - error_gib));
    drawn.push(rect("error", from, Math.min(WIDE - from, 2 * scale * error_gib), `within ${error_gib} GiB`, HIGH / 3));
  }
  drawn.push(rect("end", Math.min(WIDE - 4, scale * size), 4, `the GPU's ${size.toFixed(1)} GiB`));
  return `<svg xmlns="http://www.w3.org/2000/svg" class="memory" viewBox="0 0 ${WIDE} ${HIGH}" preserveAspectRatio="none" role="img" aria-label="Memory of one GPU">${drawn.join("")}</svg>`;
}
