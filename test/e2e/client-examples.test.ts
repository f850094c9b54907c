import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import { afterAll, expect } from "@jest/globals";
import { clientExamples, consumerFolder } from "../support/client-package.js";
import { eventually } from "../support/eventually.js";
import { type SharedStack, sharedStack } from "../support/stack.js";
import { created, deleted } from "../support/timeline-events.js";
import { tokenOf } from "../support/tokens.js";

const examples = clientExamples();
const onStack = sharedStack({ roles: "bridge,fanout,api,gateway,analysis,rewards", data: true });
const run = new Set<string>();

interface Running {
  readonly lines: string[];
  readonly exited: Promise<number | null>;
  kill(): Promise<void>;
}

/** Runs an example as it stands, as a user. */
async function runExample(stack: SharedStack, { name, user }: { name: string; user: string }): Promise<() => Running> {
  const code = examples.get(name);
  if (code === undefined) throw new Error(`the README has no example ${name}`);
  run.add(name);
  const folder = await consumerFolder({ "example.js": code });
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const token = await tokenOf(user, { claims: { tier: "LIFT" } });
  const env = { PATH: process.env["PATH"], TIMELINE_URL: stack.service.httpUrl, TOKEN: token, ACCOUNT: user };
  return () => {
    const child: ChildProcess = spawn(process.execPath, ["example.js"], { cwd: folder, env, stdio: "pipe" });
    const lines: string[] = [];
    let text = "";
    const keep = (part: Buffer): void => {
      text += part.toString();
      lines.splice(0, lines.length, ...text.split("\n").slice(0, -1));
    };
    child.stdout?.on("data", keep);
    child.stderr?.on("data", keep);
    const exited = once(child, "close").then(([status]) => status as number | null);
    const kill = async (): Promise<void> => {
      child.kill("SIGKILL");
      await exited;
    };
    stack.defer(kill);
    return { lines, exited, kill };
  };
}

async function post(stack: SharedStack, user: string, count: number): Promise<string[]> {
  const drops = Array.from({ length: count }, (_, number) => ({
    drop_id: `${user}-${Date.now()}-${number}`,
    user_id: user,
    visibility: "followers" as const,
    created_at: Date.now() - 100 + number,
  }));
  stack.world.post(...drops);
  await stack.publish(...drops.map(created));
  return drops.map(({ drop_id }) => drop_id);
}

const has = (lines: readonly string[], wanted: string) => (): boolean | string =>
  lines.includes(wanted) || lines.join("\n");

onStack("the example of pages walks through a home", async (stack) => {
  const user = stack.id("ada");
  const posted = await post(stack, user, 25);
  await stack.streams.settled(25);
  const { lines, exited } = (await runExample(stack, { name: "Read pages", user }))();
  expect([await exited, lines.map((line) => line.trim().split(" ")[0])]).toEqual([0, posted.toReversed()]);
});

onStack("the example of a live timeline shows the page and what comes after it", async (stack) => {
  const user = stack.id("ada");
  const [first] = await post(stack, user, 2);
  await stack.streams.settled(2);
  const { lines } = (await runExample(stack, { name: "Keep a timeline live", user }))();
  await eventually(has(lines, "shown: 2"), "the page is shown");
  await stack.publish(deleted(first as string, user));
  await stack.streams.settled(3);
  await post(stack, user, 1);
  await eventually(has(lines, "new: 2"), "the new drop is shown");
});

onStack("the example with a storage goes on where its last run was killed", async (stack) => {
  const user = stack.id("ada");
  const start = await runExample(stack, { name: "Go on where the last run ended", user });
  const first = start();
  const registered = async () => (await stack.redis.scard(`sse_connections:user:${user}`)) === 1;
  await eventually(registered, "it listens");
  const before = await post(stack, user, 3);
  const told = (lines: readonly string[], drops: readonly string[]) => (): boolean | string =>
    drops.every((drop) => lines.some((line) => line.startsWith("new_drop") && line.includes(drop))) || lines.join("\n");
  await eventually(told(first.lines, before), "it has heard of three drops");
  await first.kill();
  const missed = await post(stack, user, 3);
  await stack.streams.settled(6);
  const second = start();
  await eventually(told(second.lines, missed), "it has heard of what it missed");
  // The last event that the first run printed may not be passed: it is told again, and no other.
  expect(second.lines.length).toBeLessThanOrEqual(missed.length + 1);
  expect(second.lines.filter((line) => !line.startsWith("new_drop"))).toEqual([]);
});

onStack("the example of positions counts what is newer, and moves the position to the newest drop", async (stack) => {
  const user = stack.id("ada");
  const start = await runExample(stack, { name: "Remember how far the user has read", user });
  for (const [version, newer] of [0, 3].entries()) {
    await post(stack, user, 3);
    await stack.streams.settled(3 * (version + 1));
    const { lines, exited } = start();
    expect([await exited, lines]).toEqual([0, [`${newer} newer, version ${version}`]]);
  }
});

onStack("the example of a token renews it", async (stack) => {
  const user = stack.id("ada");
  const { lines, exited } = (await runExample(stack, { name: "Renew the token", user }))();
  expect([await exited, lines]).toEqual([0, [user]]);
});

onStack("the example of an analysis prints its result, and ends", async (stack) => {
  const user = stack.id("ada");
  stack.world.addProfile(user);
  const { lines, exited } = (await runExample(stack, { name: "Analyse an account", user }))();
  expect([await exited, lines]).toEqual([0, [`${user} 0 posts`]]);
});

afterAll(() => {
  if (run.size > 1) expect([...run].toSorted()).toEqual([...examples.keys()].toSorted());
});
