#!/usr/bin/env node
import { existsSync } from "node:fs";
import { runCli } from "./cli/program.js";

// The image is built without the sandbox: there is no `up` and no `demo` in it.
const sandbox = existsSync(new URL("./sandbox/commands.js", import.meta.url))
  ? (await import("./sandbox/commands.js")).sandboxCommands()
  : [];
await runCli(process.argv, sandbox);
