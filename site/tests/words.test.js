// What the pages read and write themselves, without a browser, and how they are written.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFile, readdir } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { address, readAddress, unpinned } from "../src/link.js";
import { memoryBar } from "../src/bar.js";
import { parseJson } from "../src/python.js";
import { older, unpack } from "../src/release.js";
import { ROOT } from "./browser.js";

test("a whole number that a double cannot hold stays as it is written", () => {
  const text = '{"a": 9223372036854775807, "b": [-9223372036854775808, 1.2345678901234567890], "c": "9223372036854775807: {\\"x\\"", "d": 9007199254740991, "e": 1e300}';
  const { a, b, c, d, e } = parseJson(text);
  assert.deepEqual([a, b[0], b[1], c, d, e], [9223372036854775807n, -9223372036854775808n, 1.2345678901234567, '9223372036854775807: {"x"', 9007199254740991, 1e300]);
});

test("an address gives its plans back, and each cut of it is noticed", () => {
  const plans = [{ form: { gpu: "h100", more: "'a b' +" }, config: "{}" }, { form: { model: "x/y" }, config: null }];
  const whole = address(plans);
  assert.deepEqual(readAddress(whole), { plans, wrong: [], pin: null });
  assert.deepEqual(readAddress("").wrong, []);
  for (let end = 2; end < whole.length; end++) {
    const { plans: read, wrong } = readAddress(whole.slice(0, end));
    assert.ok(wrong.length > 0 || read.length === 1, whole.slice(0, end));
  }
  const pin = { release: "0.5.23", id: "0123456789abcdef", said: "Can be launched: SGLang 0.5.23", day: "2026-11-28" };
  assert.deepEqual(readAddress(address(plans, pin)), { plans, wrong: [], pin });
  assert.equal(unpinned(address(plans, pin)), whole);
  assert.match(readAddress(address(plans, pin).slice(0, -9)).wrong[0], /ends in the middle/);
  assert.match(readAddress('#p={"gpu": 1, "x": "y"}').wrong[0], /gpu, x of plan 1/);
});

test("an address holds no secret, and what only looks like one stays", () => {
  const secrets = ["engine.env.HF_TOKEN=a1b2c3", "'engine.env.DB_PWD=a1b2c3'", 'engine.env.POD_SIGNING_KEY="a1b2c3"', "api_key=a1b2c3", "x=redis://me:a1b2c3@host", "x=hf_a1b2c3a1b2c3a1b2c3"];
  const plain = "engine.env.MAX_TOKENS=4096 engine.env.TOKEN_BUDGET=40960 engine.env.PIN_MEMORY=1 max_total_tokens=4096 x=http://host:8000";
  const { more } = readAddress(address([{ form: { more: [...secrets, plain].join(" ") }, config: null }])).plans[0].form;
  assert.ok(!more.includes("a1b2c3"), more);
  assert.ok(more.endsWith(plain), more);
});

test("the wheel of an older release is made of the next newer and what differs", () => {
  const script = String.raw`
import json, sys
sys.path[:0] = ["site", "."]
from releases import archive_of, difference
lines = [f"line {number}\n" for number in range(400)]
new = {"a/x.py": "".join(lines).encode(), "same.py": b"\xff\x00 same\n", "gone.py": b"1\n"}
old = {"a/x.py": "".join([*lines[:90], "another\n", *lines[200:], *lines[3:9]]).encode(), "same.py": new["same.py"], "empty.py": b"", "own.py": b"no line end"}
newer, older = archive_of(new, ["a"]), archive_of(old, ["a", "b"])
print(json.dumps([each.hex() for each in (newer.content, older.content, difference(newer, older))]))
`;
  const { stdout, stderr } = spawnSync(process.env.PYTHON ?? path.join(ROOT, ".venv/bin/python"), ["-c", script], { cwd: ROOT, encoding: "utf8" });
  assert.ok(stdout, stderr);
  const [newer, wanted, difference] = JSON.parse(stdout).map((hex) => new Uint8Array(Buffer.from(hex, "hex")));
  assert.deepEqual(older(newer, difference), wanted);
  assert.ok(difference.length < 700, `${difference.length} bytes differ of ${wanted.length}`);
  const written = new Map();
  unpack({ mkdirTree: () => {}, chmod: () => {}, writeFile: (name, content) => written.set(name, Buffer.from(content).toString()) }, "/w", wanted);
  assert.deepEqual([...written.keys()], ["/w/a/x.py", "/w/empty.py", "/w/own.py", "/w/same.py"]);
  assert.equal(written.get("/w/own.py"), "no line end");
});

test("the picture of the memory has each part to scale, the end of the GPU, and no text becomes markup", () => {
  const drawn = memoryBar([["weights", " 40.0", ""], ["KV <cache>", "20.0", ""], ["activations", "?", ""], ["left", "20.0", ""]], { memory_gib: 80, left_gib: 20, error_gib: 4 });
  const widths = [...drawn.matchAll(/class="([^"]+)" x="([\d.]+)" width="([\d.]+)"/g)].map((match) => match.slice(1));
  assert.deepEqual(widths, [["m-weights", "0", "500"], ["m-kv-cache-", "500", "250"], ["error", "700", "100"], ["end", "996", "4"]]);
  assert.match(drawn, /<title>KV &#60;cache&#62; 20\.0 GiB<\/title>/);
  assert.match(memoryBar([["weights", "160", ""]], { memory_gib: 80 }), /m-weights" x="0" width="1000".*end" x="500"/);
});

test("no type is any, and colours and fonts come from one file", async () => {
  const source = async (name) => readFile(path.join(ROOT, name), "utf8");
  for (const name of await readdir(path.join(ROOT, "site/src"))) if (name.endsWith(".js")) assert.doesNotMatch(await source(`site/src/${name}`), /[{<:,|] ?any\b|@ts-(?:ignore|nocheck|expect)/, name);
  const tokens = await source("sglang_hydra/measure/report/tokens.css");
  for (const name of ["site/src/style.css", "sglang_hydra/measure/report/page.css", "docs/style.css"]) {
    const css = await source(name);
    assert.doesNotMatch(css, /#[0-9a-f]{3,8}\b(?![^{]*\{)|rgb|hsl|system-ui|ui-monospace|sans-serif/i, name);
    for (const [, token] of css.matchAll(/var\(--([\w-]+)\)/g)) assert.ok(token === "c" || tokens.includes(`--${token}:`), `${name}: --${token}`);
  }
});
