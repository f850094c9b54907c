import { readdirSync, readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "@jest/globals";
import { temporaryFolder } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { HAS_NATS, inShell } from "../support/operator.js";
import { startStack } from "../support/stack.js";
import { quickTest } from "../support/suite.js";

const natsTest = HAS_NATS ? quickTest : test.skip.bind(test);
const nats = natsOfFile();

const OTHER_DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "src/sandbox/up.ts"];
const NOTES = "charts/avion-timeline/templates/NOTES.txt";
const BACKUP = "/backup/nats";

/** Every nats command of the documents, once: lines of blocks, and code in the text, which a line break may split. */
function natsCommands(): string[] {
  const inDocs = readdirSync("docs", { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".md"));
  const documents = [...OTHER_DOCUMENTS, NOTES, ...inDocs.map((name) => join("docs", name))];
  const commands = documents
    .map((path) => readFileSync(path, "utf8"))
    .flatMap((text) => [...text.matchAll(/^ *(nats [^#\n]*)/gm), ...text.matchAll(/`(nats\s[^`]*)`/g)])
    .map(([, command = ""]) => command.replaceAll(/\s+/g, " ").trim());
  return [...new Set(commands)];
}

/** Removing and restoring streams has a test of its own, without a service beside it. */
const isOfBackup = (command: string): boolean => command.includes(BACKUP) || command.includes("nats stream rm");

async function environmentOf(natsUrl: string, folder: string): Promise<Record<string, string>> {
  return { PATH: process.env["PATH"] ?? "", HOME: folder, NATS_URL: natsUrl };
}

natsTest(
  "each nats command of the documents works without a terminal",
  async () => {
    const stack = await startStack({ env: { TIMELINE_NOTIFY_PARTS: "2" } });
    const folder = await temporaryFolder("nats-cli");
    try {
      await stack.redis.publish("drop_created", "not json");
      await eventually(async () => (await stack.streams.count("DLQ")) === 1, "there is a dead letter");
      const [deadLetter] = await stack.streams.all("DLQ");
      const env = await environmentOf(stack.natsServer.url, folder);
      const commands = natsCommands().filter((command) => !isOfBackup(command));
      expect(commands.length).toBeGreaterThan(15);
      for (const command of commands) {
        const filled = command
          .replace("<stream>", "DROPS")
          .replace("<consumer>", "planner")
          .replace(/\b17\b/, String(deadLetter?.seq));
        // A single server has no other leader; it says so.
        const moves = command.startsWith("nats stream cluster");
        const output = await inShell(moves ? `${filled} 2>&1 | grep cluster` : filled, env);
        expect({ command, output }).toMatchObject({ output: expect.not.stringContaining("Nats-Service-Error") });
      }
    } finally {
      await stack.stop();
      await rm(folder, { recursive: true, force: true });
    }
  },
  120_000,
);

natsTest(
  "a backup of NATS is made and restored by the commands of docs/procedures.md, without a terminal",
  async () => {
    const folder = await temporaryFolder("nats-backup");
    try {
      await nats.publish({ subject: "drops.created", id: "one", body: Buffer.from("{}") });
      const [backup = "", remove = "", restore = ""] = natsCommands().filter(isOfBackup);
      expect([backup, remove, restore]).toEqual([
        expect.stringMatching(/^nats backup account .* -f$/),
        expect.stringContaining("nats stream rm"),
        expect.stringContaining("nats backup restore account"),
      ]);
      const env = await environmentOf(nats.broker.url, folder);
      const run = (command: string) =>
        inShell(command.replace(BACKUP, folder).replace(/\d{4}-\d\d-\d\d/, "$(date +%F)"), env);
      const state = async () => {
        const streams = await nats.manager.streams.list().next();
        const consumers = await Promise.all(
          streams.map(({ config }) => nats.manager.consumers.list(config.name).next()),
        );
        return streams.map(({ config, created, state: { messages, last_seq } }, index) => ({
          ...{ config, created, messages, last_seq },
          consumers: consumers[index]?.map(({ name, config, delivered, ack_floor }) => ({
            ...{ name, config, delivered: delivered.consumer_seq, ack_floor: ack_floor.consumer_seq },
          })),
        }));
      };
      const before = await state();
      expect(before.find(({ config }) => config.name === "DROPS")).toMatchObject({ messages: 1 });

      await run(backup);
      await run(remove);
      expect(await state()).toEqual([]);
      await run(restore);

      expect(await state()).toEqual(before);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
  60_000,
);
