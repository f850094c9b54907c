import { chmod, readFile, rm, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { temporaryFolder } from "../support/brokers.js";
import { becomes, eventually } from "../support/eventually.js";
import { HAS_NATS, inShell } from "../support/operator.js";
import { program } from "../support/service.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";

const OPTIONS = { env: { TIMELINE_MAX_ATTEMPTS: "2", TIMELINE_RETRY_BASE_MS: "20" }, timeoutMs: 180_000 };

/** The commands of a document, in order: every line of its blocks of `sh`. */
function commandsOf(document: string): string[] {
  return [...document.matchAll(/^```sh\n([\s\S]*?)^```/gm)].flatMap(([, block = ""]) => block.trim().split("\n"));
}

interface Ran {
  readonly command: string;
  readonly output: string;
}

/** Runs the commands as an operator would, in a shell; each must end with 0. */
function operatorOf({ serviceOptions, service }: Stack, folder: string) {
  const { PATH = "" } = process.env;
  const env = {
    ...{ PATH: `${folder}${delimiter}${PATH}`, HOME: folder, HTTP: service.httpUrl },
    ...{ NATS_URL: serviceOptions.natsUrl, REDIS_URL: serviceOptions.redisUrl },
    TIMELINE_USER_SERVICE_ADDR: serviceOptions.usersAddress,
    TIMELINE_POST_SERVICE_ADDR: serviceOptions.postsAddress,
  };
  return async (commands: readonly string[]): Promise<Ran[]> => {
    const ran: Ran[] = [];
    for (const command of commands) {
      if (!HAS_NATS && command.startsWith("nats ")) continue;
      const output = await inShell(command, env);
      ran.push({ command, output });
    }
    return ran;
  };
}

/** `avion-timeline` as the package installs it. */
async function installed(): Promise<string> {
  const folder = await temporaryFolder("dead-letters");
  const command = join(folder, "avion-timeline");
  await writeFile(command, `#!/bin/sh\nexec "${[process.execPath, ...program()].join('" "')}" "$@"\n`);
  await chmod(command, 0o755);
  return folder;
}

/** Four drops of author 42 that are given up; yields how UserService is mended, and the first dead letter. */
async function incident({ world, upstreams, streams, publish }: Stack): Promise<{ mend: () => void; first: number }> {
  world.follow("bob", "42");
  for (const reader of ["carol", "dave"]) world.follow(reader, "7");
  const mend = upstreams.inject({ method: "GetFollowersList", user: "42", code: status.INTERNAL });
  const drops = Array.from({ length: 16 }, (_, number) => ({
    ...{ drop_id: `d${number}`, user_id: number % 4 === 0 ? "42" : "7", visibility: "public" as const },
    created_at: Date.now() - 60_000 + number,
  }));
  world.post(...drops);
  await publish(...drops.map(created));
  await eventually(async () => (await streams.count("DLQ")) === 4, "the author's drops are given up");
  const [deadLetter] = await streams.all("DLQ");
  return { mend, first: deadLetter?.seq ?? 0 };
}

testWithStack(
  "the incident of dead letters in docs/procedures.md goes as it is written there",
  OPTIONS,
  async (stack) => {
    const document = await readFile("docs/procedures.md", "utf8");
    const [before = "", after = ""] = document.split(/^### 3\. .*$/m);
    const folder = await installed();
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const run = operatorOf(stack, folder);
    const { mend, first } = await incident(stack);
    // The dead letter that the document calls 17 has another number here.
    const commands = (part: string): string[] =>
      commandsOf(part).map((command) => command.replaceAll(/\b17\b/g, String(first)));
    const gauge = async (): Promise<string> => (await fetch(`${stack.service.httpUrl}/metrics`)).text();
    await eventually(async () => /^timeline_dlq_messages.* 4$/m.test(await gauge()), "the metric was sampled");

    const looked = await run(commands(before));
    const outputOf = (ran: readonly Ran[], command: string) =>
      ran.filter((one) => one.command.startsWith(command)).at(-1)?.output;
    expect(outputOf(looked, "curl")).toMatch(/^timeline_dlq_messages.* 4$/m);
    expect(outputOf(looked, "avion-timeline dlq ls --json")).toContain("GetFollowersList");
    expect(looked.find(({ command }) => command === "avion-timeline dlq ls")?.output).toMatch(
      /^4 x GetFollowersList: INTERNAL: .* for author 42\n/,
    );
    if (HAS_NATS) {
      expect(outputOf(looked, "nats stream subjects")).toContain("dlq.exhausted.drop_created");
      expect(outputOf(looked, "nats micro ls")).toContain("avion-dlq");
      expect(outputOf(looked, "nats req avion.ops.dlq.list")).toContain('"reason":"exhausted"');
      expect(outputOf(looked, "nats req avion.ops.dlq.show")).toContain(`"seq":${first}`);
    }

    mend();
    const sent = await run(commands(after));
    expect(outputOf(sent, "avion-timeline dlq ls")).toBe("no dead letters\n");
    expect(outputOf(sent, "avion-timeline audit --user")).toMatch(/^0 of \d+ users differ/);
    expect(outputOf(sent, "avion-timeline timeline rebuild")).toBe("2 timelines rebuilt, 0 failed\n");
    expect(outputOf(sent, "avion-timeline replay")).toMatch(/^\d+ events applied, up to /);
    await becomes(async () => {
      const expected = stack.world.homeOf("bob").map(({ drop_id }) => drop_id);
      expect(await stack.redis.zrevrange("timeline:home:bob", 0, -1)).toEqual(expected);
    });
    expect(await stack.streams.count("DLQ")).toBe(0);
  },
);
