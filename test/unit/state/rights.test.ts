import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "@jest/globals";
import { CHECKED_COMMANDS } from "../../../src/state/servers/rights.redis.js";

const SOURCES = join(process.cwd(), "src");

/** Commands that only make pages faster, or that a connection of Pub/Sub or of a sentinel sends. */
const OPTIONAL = ["client", "sentinel"];
/** Methods of clients that are no commands of Redis. */
const METHODS =
  /^(call|close|connect|disconnect|nodes|pipeline|duplicate|on|once|off|query|release|end|reset|send|drained|heartbeat)$/;

const files = (extension: string): string[] =>
  readdirSync(SOURCES, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(extension));

const found = (file: string, pattern: RegExp): string[] =>
  [...readFileSync(join(SOURCES, file), "utf8").matchAll(pattern)].map(([, name = ""]) => name.toLowerCase());

test("the check of rights asks for each command that a script calls", () => {
  const called = files(".lua").flatMap((file) => found(file, /\bp?call\('([A-Za-z]+)'/g));
  expect(called.length).toBeGreaterThan(100);
  expect(called.filter((name) => !CHECKED_COMMANDS.includes(name))).toEqual([]);
});

test("the check of rights asks for each command that a client sends", () => {
  const inPlatform = files(".ts").filter((file) => file.startsWith("platform/redis/"));
  const adapters = files(".redis.ts")
    .filter((file) => !file.startsWith("operators/doctor/"))
    .concat(inPlatform);
  const sent = adapters.flatMap((file) => [
    ...found(file, /\b(?:client|server)\.([a-z]+)\(/g),
    ...found(file, /\[\s*"([a-z]{3,})",\s*[a-zA-Z`]+(?:Key|KEY)?\b/g),
  ]);
  const commands = sent.filter((name) => !METHODS.test(name) && !OPTIONAL.includes(name));
  expect(commands.length).toBeGreaterThan(40);
  expect([...new Set(commands.filter((name) => !CHECKED_COMMANDS.includes(name)))]).toEqual([]);
});
