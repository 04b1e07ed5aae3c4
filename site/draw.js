// Draws the memory of plans for build.py: a list of [rows, fit] as JSON in, a list of pictures out (src/bar.js).
import { text } from "node:stream/consumers";
import { memoryBar } from "./src/bar.js";

console.log(JSON.stringify(JSON.parse(await text(process.stdin)).map((asked) => asked && memoryBar(...asked))));
