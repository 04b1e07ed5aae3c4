// What the pages read and write themselves, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { address, readAddress } from "../src/link.js";
import { parseJson } from "../src/python.js";

test("a whole number that a double cannot hold stays as it is written", () => {
  const text = '{"a": 9223372036854775807, "b": [-9223372036854775808, 1.2345678901234567890], "c": "9223372036854775807: {\\"x\\"", "d": 9007199254740991, "e": 1e300}';
  const { a, b, c, d, e } = parseJson(text);
  assert.deepEqual([a, b[0], b[1], c, d, e], [9223372036854775807n, -9223372036854775808n, 1.2345678901234567, '9223372036854775807: {"x"', 9007199254740991, 1e300]);
});

test("an address gives its plans back, and each cut of it is noticed", () => {
  const plans = [{ form: { gpu: "h100", more: "'a b' +" }, config: "{}" }, { form: { model: "x/y" }, config: null }];
  const whole = address(plans);
  assert.deepEqual(readAddress(whole), { plans, wrong: [] });
  assert.deepEqual(readAddress("").wrong, []);
  for (let end = 2; end < whole.length; end++) {
    const { plans: read, wrong } = readAddress(whole.slice(0, end));
    assert.ok(wrong.length > 0 || read.length === 1, whole.slice(0, end));
  }
  assert.match(readAddress('#p={"gpu": 1, "x": "y"}').wrong[0], /gpu, x of plan 1/);
});
