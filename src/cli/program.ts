import { Command } from "commander";
import { oneLine } from "../kernel/errors.js";
import { ConfigError } from "../kernel/variables.js";
import { VERSION } from "../roles/version.js";
import { dlqCommand, when } from "./dlq-options.js";
import { auditCommand, replayCommand, timelineCommand } from "./timeline-options.js";

/** Runs the command line, with the `sandbox` commands where there are any. A command loads its code when it is called. */
export async function runCli(argv: readonly string[], sandbox: readonly Command[]): Promise<void> {
  const program = new Command("avion-timeline")
    .description("A timeline service: fan-out on write, gRPC reads, Server-Sent Events")
    .version(VERSION)
    .showHelpAfterError();
  program
    .command("serve")
    .description("run the roles in TIMELINE_ROLES until SIGTERM")
    .action(async () => (await import("./serve.js")).serve());
  program
    .command("config")
    .description("print every variable, its default and its meaning, as Markdown")
    .action(async () => console.log((await import("./variables-table.js")).variablesAsMarkdown()));
  program
    .command("doctor")
    .description("check versions and connections, and say what is wrong and what to do")
    .option("--json", "print the findings as JSON", false)
    .action(async (options) => process.exit(await (await import("./doctor.js")).doctor(options)));
  program
    .command("reconcile")
    .description("admit what the upstreams changed and Redis Pub/Sub has lost")
    .requiredOption("--since <when>", "from then on: 15m, 2h, 7d (ago), or a date", when)
    .option("--until <when>", "up to then (default: now)", when)
    .option("--json", "print JSON", false)
    .action(async (options) => process.exit(await (await import("./reconcile.js")).reconcileByHand(options)));
  for (const command of [dlqCommand(), replayCommand(), timelineCommand(), auditCommand(), ...sandbox])
    program.addCommand(command);
  try {
    await program.parseAsync(argv);
  } catch (error) {
    if (error instanceof ConfigError) {
      console.error(error.message);
      process.exit(2);
    }
    console.error(`avion-timeline: ${oneLine(error)}`);
    process.exit(1);
  }
}
