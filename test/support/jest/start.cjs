/**
 * Runs the bundle of the product beside this file. V8 keeps what it compiled for the first `serve` that ends: later
 * processes start with two thirds of the CPU time.
 */
const { existsSync, readFileSync, renameSync, writeFileSync } = require("node:fs");
const { createRequire } = require("node:module");
const { join } = require("node:path");
const { setFlagsFromString } = require("node:v8");
const { Script } = require("node:vm");

const BUNDLE = join(__dirname, "main.cjs");
const COMPILED = join(__dirname, "main.v8");

const cachedData = existsSync(COMPILED) ? readFileSync(COMPILED) : undefined;
const script = new Script(`(require, module) => {${readFileSync(BUNDLE, "latin1")}\n}`, {
  filename: BUNDLE,
  ...(cachedData && { cachedData }),
});
const bundle = { exports: {} };
script.runInThisContext()(createRequire(BUNDLE), bundle);
// The embedded database starts in half of the time where its WebAssembly is not compiled again for speed.
if (cachedData) setFlagsFromString("--liftoff-only");
else if (process.argv[2] === "serve") process.once("exit", keep);
// By itself this file runs what dist/main.js runs; entry.cjs runs the tests' entry point.
bundle.exports[require.main === module ? "main" : "entry"]();

/** Compiled code is for the flags it was compiled with. */
function keep() {
  const draft = `${COMPILED}.${process.pid}`;
  writeFileSync(draft, script.createCachedData());
  renameSync(draft, COMPILED);
}
