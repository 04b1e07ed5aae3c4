// Every page of the catalog, read as text: what it says must hold together. What a build refuses is in published.py.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { SITE } from "./browser.js";

const FOLDER = path.join(SITE, "fit");
const names = (await readdir(FOLDER, { recursive: true })).filter((name) => /^[^/]+\/(?!index)[^/]+\.html$/.test(name));
const pages = await Promise.all(names.map(async (name) => [name, await readFile(path.join(FOLDER, name), "utf8")]));
const title = (html) => html.match(/<title>([^<]*)<\/title>/)[1];
const isGreen = (html) => /<h1 class="(yes|unknown)"/.test(html);
/** The rows of a page's table by the number of GPUs: the number, and what it says of each load. */
const rows = (html) => {
  const loads = [...html.match(/by-load"><thead>.*?<\/thead>/)[0].matchAll(/col">([^<]*)/g)].map(([, words]) => words).slice(1);
  return [...html.matchAll(/<tr><th scope="row">(\d+)<\/th>((?:<td class="(?:yes|no|unknown)">\w+<\/td>)+)/g)].map(([, gpus, cells]) => ({
    gpus: Number(gpus),
    held: Object.fromEntries([...cells.matchAll(/>(\w+)</g)].map(([, word], place) => [loads[place], word !== "no"])),
  }));
};

/** Fails with every page of which `check` says something. */
function everyPage(check) {
  const wrong = pages.map(([name, html]) => [name, check(html, name)]).filter(([, found]) => found);
  assert.deepEqual(wrong.slice(0, 10), [], `${wrong.length} pages`);
}

test("there is a page for every pair, and most of them are green", () => {
  assert.ok(pages.length > 2000, String(pages.length));
  assert.ok(pages.filter(([, html]) => isGreen(html)).length > 1000);
});

test("a title says how many GPUs hold which load, and its table agrees", () =>
  everyPage((html) => {
    if (!isGreen(html)) return /no plan of up to 16 GPUs was found that holds/.test(title(html)) ? "" : title(html);
    const said = title(html).match(/: (\d+) GPUs? (?:may )?holds? ((?:one request|\d+ requests) of (?:[\d,]+ tokens|the longest))(, with .*)?$/);
    if (!said) return title(html);
    const held = rows(html).find((row) => row.held[said[2]]);
    if (said[3]) return held ? `${title(html)}, and ${held.gpus} do without` : "";
    const isBeyond = Number(said[1]) > 16 && !held;
    return isBeyond || held?.gpus === Number(said[1]) ? "" : `${title(html)}, the table ${held?.gpus}`;
  }));

test("other weights than the model's own are in the title", () =>
  everyPage((html) => {
    const other = html.match(/These are the weights of <code>([^<]+)<\/code>/)?.[1];
    return !other || title(html).includes(other) ? "" : `${title(html)} hides ${other}`;
  }));

test("a command for several nodes is whole on each", () =>
  everyPage((html) => {
    const commands = [...html.matchAll(/<pre tabindex="0">([^<]*launch_server[^<]*)<\/pre>/g)].map(([, command]) => command);
    if (isGreen(html) && !commands.length) return "no command";
    const ranks = commands.filter((line) => line.includes("--nnodes")).map((line) => [line, line.match(/--node-rank (\d+)/)?.[1], line.includes("--dist-init-addr")]);
    return ranks.filter(([, rank, address], place) => rank !== String(place) || !address).map(([line]) => line)[0] ?? "";
  }));

test("no GPU runs a format that its vendor has no kernels for", () =>
  everyPage((html, name) => {
    const gpu = path.basename(name, ".html");
    const never = /^mi\d/.test(gpu) ? /NVFP4/i : /^(gaudi|ascend)/.test(gpu) ? /NVFP4|MXFP4|FP8/i : null;
    return never && isGreen(html) && never.test(title(html)) ? title(html) : "";
  }));

test("no green page has a finding that stops the start in the row of its number", () =>
  everyPage((html) => {
    const number = isGreen(html) && title(html).match(/: (\d+) GPU/)?.[1];
    const why = number && !title(html).includes(", with ") && html.match(new RegExp(`<th scope="row">${number}</th>.*<td>([^<]*)</td></tr>`))?.[1];
    return why && /\((?:RUN021|RUN007|RUN008|RUN022|REL010)\)/.test(why) ? why : "";
  }));
