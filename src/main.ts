#!/usr/bin/env node
import { runCli } from "./main/cli.js";

await runCli(process.argv);
