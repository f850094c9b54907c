/**
 * Runs the bundle of the product beside this file. V8 keeps what it compiled for the first `serve` that ends: later
 * processes start with two thirds of the CPU time.
 */
const { existsSync, readFileSync, renameSync, writeFileSync } = require("node:fs");
const { createRequire } = require("node:module");
const { join } = require("node:path");
const { Script } = require("node:vm");

const FLAG = "--liftoff-only";
const BUNDLE = join(__dirname, "main.cjs");
// V8 refuses code that was compiled by another version, or with other flags.
const COMPILED = join(__dirname, `main-${process.version}${process.execArgv.includes(FLAG) ? FLAG : ""}.v8`);

const cachedData = existsSync(COMPILED) ? readFileSync(COMPILED) : undefined;
const script = new Script(`(require, module) => {${readFileSync(BUNDLE, "latin1")}\n}`, {
  filename: BUNDLE,
  ...(cachedData && { cachedData }),
});
const bundle = { exports: {} };
script.runInThisContext()(createRequire(BUNDLE), bundle);
if (!cachedData && process.argv[2] === "serve") process.once("exit", keep);
// By itself this file runs what dist/main.js runs; entry.cjs runs the tests' entry point.
bundle.exports[require.main === module ? "main" : "entry"]();

function keep() {
  const draft = `${COMPILED}.${process.pid}`;
  writeFileSync(draft, script.createCachedData());
  renameSync(draft, COMPILED);
}
