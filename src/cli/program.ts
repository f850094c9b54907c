import { Command } from "commander";
import { oneLine } from "../kernel/errors.js";
import { ConfigError } from "../kernel/variables.js";
import { VERSION } from "../kernel/version.js";

/** An invalid command line or configuration ends with this exit code. */
const USAGE = 2;

/** A file is loaded when its command is called, so that `--help` and `serve` start fast. */
const COMMANDS: Readonly<
  Record<string, readonly [about: string, load: () => Promise<{ define(command: Command): void }>]>
> = {
  serve: ["run the roles in TIMELINE_ROLES until SIGTERM", () => import("./serve.js")],
  config: ["print every variable, its default and its meaning, as Markdown", () => import("./config.js")],
  doctor: ["check versions and connections; say what is wrong and what to do", () => import("./doctor.js")],
  reconcile: ["admit the changes of the upstreams whose events never reached the log", () => import("./reconcile.js")],
  dlq: ["list and show dead letters, redrive or delete them", () => import("./dlq.js")],
  analysis: ["show which analyses are not done, since when, and where", () => import("./analysis.js")],
  replay: ["apply a range of the log again, without notifications", () => import("./replay.js")],
  recover: [
    "after a restore of the database: make the log and all timelines agree with it",
    () => import("./recover.js"),
  ],
  timeline: ["work on stored timelines", () => import("./timeline.js")],
  database: ["work on the database of the roles that keep data", () => import("./database.js")],
  author: ["show and choose whose drops are pushed into homes, tiered or pulled", () => import("./author.js")],
  erase: ["erase a user for ever; show and verify erasures", () => import("./erase.js")],
  standing: ["limit and suspend users and hosts, and lift it", () => import("./standing.js")],
  streams: ["end all event streams of a user who is logged out everywhere", () => import("./streams.js")],
  limits: ["list the users who are at a limit now", () => import("./limits.js")],
  audit: ["compare timelines with the upstreams and the log; exits 1 if one differs", () => import("./audit.js")],
};

/** Runs the command line; `sandbox` are further commands. */
export async function runCli(argv: readonly string[], sandbox: readonly Command[]): Promise<void> {
  // Progress that nobody reads any more must not end the work (`2>&1 | head`).
  process.stderr.on("error", () => undefined);
  const program = new Command("avion-timeline")
    .description("A timeline service: fan-out on write, gRPC reads, Server-Sent Events")
    .version(VERSION)
    .showHelpAfterError()
    // Commander has printed the error.
    .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : USAGE));
  const called = argv.slice(2).find((word) => word in COMMANDS);
  for (const [name, [about, load]] of Object.entries(COMMANDS)) {
    const command = program.command(name).description(about);
    if (name === called) (await load()).define(command);
  }
  for (const command of sandbox) program.addCommand(command.copyInheritedSettings(program));
  try {
    await program.parseAsync(argv);
  } catch (error) {
    if (error instanceof ConfigError) {
      console.error(error.message);
      process.exit(USAGE);
    }
    console.error(`avion-timeline: ${oneLine(error)}`);
    process.exit(1);
  }
}
