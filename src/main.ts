#!/usr/bin/env node
import { existsSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runCli } from "./cli/program.js";

// Objects that code allocates in the old generation keep alive what they refer to: see decision 54.
setFlagsFromString("--no-allocation-site-pretenuring");

// The image is built without the sandbox: there is no `up` and no `demo` in it.
const sandbox = existsSync(new URL("./sandbox/commands.js", import.meta.url))
  ? (await import("./sandbox/commands.js")).sandboxCommands()
  : [];
await runCli(process.argv, sandbox);
