import { Command, InvalidArgumentError } from "commander";
import { oneLine } from "../kernel/errors.js";
import { ConfigError } from "./config.js";
import { dlqCommand, when } from "./dlq-options.js";
import { auditCommand, replayCommand, timelineCommand } from "./timeline-options.js";
import { VERSION } from "./version.js";

function port(text: string): number {
  return whole(text, 65_535);
}

function count(text: string): number {
  return whole(text, 1_000_000);
}

function whole(text: string, max: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value <= max) return value;
  throw new InvalidArgumentError(`must be a whole number up to ${max}`);
}

/** Runs the command line; what a command needs is loaded when it is called. */
export async function runCli(argv: readonly string[]): Promise<void> {
  const program = new Command("avion-timeline")
    .description("A timeline service: fan-out on write, gRPC reads, Server-Sent Events")
    .version(VERSION)
    .showHelpAfterError();
  program
    .command("serve")
    .description("run the roles in TIMELINE_ROLES until SIGTERM")
    .action(async () => (await import("./serve.js")).serve());
  program
    .command("up")
    .description("start embedded Redis and NATS, a seeded world and every role, and stay up")
    .option("--http-port <port>", "preferred HTTP port", port, 8080)
    .option("--grpc-port <port>", "preferred gRPC port", port, 50051)
    .option("--followers <count>", "followers of the author with the most", count, 2_000)
    .action(async (options) => (await import("./up.js")).up(options));
  program
    .command("demo")
    .description("start all of it, walk through the main job with real events, check it, and end")
    .action(async () => process.exit(await (await import("./demo/demo.js")).demo()));
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
  for (const command of [dlqCommand(), replayCommand(), timelineCommand(), auditCommand()]) program.addCommand(command);
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
