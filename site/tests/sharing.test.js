// What others see of a link: addresses are absolute where the build knows the site's, and there are none where not.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtemp, readFile, readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { ROOT } from "./browser.js";

const PYTHON = process.env.PYTHON ?? path.join(ROOT, ".venv/bin/python");
const WRITE = `
import sys
from pathlib import Path
sys.path[:0] = ["site", "."]
from build import Pages
from preview import draw_model, draw_pair, draw_plan
from sharing import linked, write_shared
out, address = Path(sys.argv[1]), sys.argv[2]
pages = Pages(out, ("plan",), address)
pages.write("404.html", "404.html", up=address, preview=None)
rows = [{"gpu": "h100", "marks": {"many": "4"}, "text": "4", "class": "c4", "best": {"gpus": 4, "room": "much"},
         "typed": "gpu=h100 model=a & b", "verdict": "4 GPUs"}]
class load: name, words = "many", "32 requests"
named = dict(path="org/a & b", sentence="1 of 1", preview="fit/a/preview.png", loads=[load], date="2026-11-28")
pages.write("fit/a/index.html", "model.html", **named, rows=rows, source="nvidia-smi <x>; o/r@0123abc a/b.yaml; o/r#7; o/r 0.12.0 m.json")
draw_model(out / "fit/a/preview.png", "org/a", "32 requests", "1 of 1", rows)
draw_pair(out / "fit/a/h100.png", "c4", "org/a on h100: 4 GPUs hold 32 requests", ["1 KV tokens"], "python -m sglang " * 20)
draw_plan(out / "preview.png", "fits", [{"label": "KV cache", "value": "1", "note": "tokens"}], "python -m sglang")
pages.write("index.html", "404.html")
write_shared(out, address, pages.names)
`;

/** @param {string} address */
async function written(address) {
  const folder = await mkdtemp(path.join(tmpdir(), "sharing-"));
  const { status, stderr, stdout } = spawnSync(PYTHON, ["-c", WRITE, folder, address], { cwd: ROOT, encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return { stdout, text: (name) => readFile(path.join(folder, name), "utf8"), bytes: (name) => readFile(path.join(folder, name)), names: await readdir(folder) };
}

test("with an address a page has its own title, description, canonical link and picture, and is in the list of pages", async () => {
  const { text, bytes } = await written("https://example.org/planner/");
  const html = await text("fit/a/index.html");
  assert.match(html, /<title>org\/a &amp; b: 1 of 1<\/title>/);
  assert.match(html, /<meta name="description" content="The fewest GPUs that hold 32 requests of org\/a &amp; b: h100 4\.">/);
  assert.match(html, /<link rel="canonical" href="https:\/\/example\.org\/planner\/fit\/a\/index\.html">/);
  assert.match(html, /<meta property="og:image" content="https:\/\/example\.org\/planner\/fit\/a\/preview\.png">/);
  assert.match(await text("index.html"), /<link rel="canonical" href="https:\/\/example\.org\/planner\/">/);
  for (const name of ["fit/a/preview.png", "fit/a/h100.png", "preview.png"]) {
    const png = await bytes(name);
    assert.deepEqual([png.toString("latin1", 1, 4), png.readUInt32BE(16), png.readUInt32BE(20)], ["PNG", 1200, 630]);
  }
  const listed = [...(await text("sitemap.xml")).matchAll(/<loc>([^<]+)<\/loc>/g)].map((match) => match[1]);
  assert.deepEqual(listed, ["https://example.org/planner/fit/a/index.html", "https://example.org/planner/"]);
  assert.match(await text("404.html"), /href="https:\/\/example\.org\/planner\/assets\/style\.css"/, "a host shows it at any depth");
});

test("the sources of data are links where they name a repository", async () => {
  const html = await (await written("")).text("fit/a/index.html");
  assert.match(html, /Data of 2026-11-28\. Model: nvidia-smi &lt;x&gt;;/);
  const links = [...html.matchAll(/href="https:\/\/github\.com([^"]+)">([^<]+)</g)].map(([, to, label]) => [to, label]);
  assert.deepEqual(links, [["/o/r/blob/0123abc/a/b.yaml", "o/r@0123abc a/b.yaml"], ["/o/r/issues/7", "o/r#7"], ["/o/r", "o/r 0.12.0 m.json"]]);
});

test("without an address nothing is absolute, and the build says so", async () => {
  const { stdout, text, names } = await written("");
  assert.match(stdout, /Without --address/);
  for (const name of ["index.html", "404.html"]) assert.doesNotMatch(await text(name), /canonical|og:image|og:url|https:\/\/(?!huggingface)/);
  assert.ok(!names.includes("sitemap.xml"));
});
