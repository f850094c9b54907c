import { afterAll, beforeAll, expect, test } from "@jest/globals";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { privateRedis } from "../support/brokers.js";
import { type Ending, JWT_SECRET, runMain } from "../support/service.js";

let guarded: Broker;

beforeAll(async () => {
  guarded = await privateRedis({ extraArgs: ["--requirepass", "right"] });
});

afterAll(() => guarded?.stop());

type Run = Ending & { readonly output: string; readonly errors: string };

async function run(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Run> {
  const started = runMain(args, env);
  return { ...(await started.exited), output: started.output(), errors: started.errors() };
}

test("a wrong command line exits with 2 and names what is wrong", async () => {
  const wrong: ReadonlyArray<readonly [args: string, names: string]> = [
    ["dlq ls --reason luck", "--reason"],
    ["dlq ls --since yesterday", "--since"],
    ["dlq ls --event party", "--event"],
    ["dlq ls --bogus", "--bogus"],
    ["dlq ls --rate 5", "--rate"],
    ["dlq show", "seq"],
    ["dlq show one", "seq"],
    ["dlq redrive", "sequences, a filter"],
    ["dlq redrive 17 --all", "not both"],
    ["dlq redrive 17 x", "seqs"],
    ["dlq redrive --all --rate 0", "--rate"],
    ["dlq rm", "sequences, a filter"],
    ["dlq rm --dry-run", "sequences, a filter"],
    ["audit --user ada ", "must not be empty"],
    ["author pull ", "must not be empty"],
    ["timeline rebuild ada ", "must not be empty"],
    ["replay --from 1h --to 2h", "--to"],
    ["replay --from 2999-01-01", "the range is empty"],
    ["reconcile --since 1h --until 2h", "--until"],
  ];
  const runs = await Promise.all(wrong.map(([args]) => run(args.split(" "))));
  for (const [position, [args, names]] of wrong.entries())
    expect({ args, ...runs[position] }).toMatchObject({
      ...{ args, code: 2, output: "", errors: expect.stringContaining(names) },
    });
}, 60_000);

test("without NATS a command fails at once and says what to do", async () => {
  const ended = await run(["dlq", "ls"], { NATS_URL: "nats://127.0.0.1:1" });
  expect(ended).toMatchObject({ code: 1, output: "", errors: expect.stringContaining("set NATS_URL") });
});

test("a command says why it does not reach Redis, and what to do about that", async () => {
  const away = await run(["author", "ls"], { REDIS_URL: "redis://127.0.0.1:1" });
  expect(away).toMatchObject({ code: 1, errors: expect.stringMatching(/ECONNREFUSED.*set REDIS_URL/) });
  const refused = await run(["author", "ls"], { REDIS_URL: `redis://:wrong@127.0.0.1:${guarded.port}` });
  expect(refused).toMatchObject({
    code: 1,
    errors: expect.stringMatching(/WRONGPASS.*correct the user, the password/),
  });
}, 60_000);

test("doctor tells who is refused to correct the password, and not to start the server", async () => {
  const env = {
    ...{ REDIS_URL: `redis://:wrong@127.0.0.1:${guarded.port}`, NATS_URL: "nats://127.0.0.1:1" },
    ...{ TIMELINE_ROLES: "gateway", TIMELINE_JWT_SECRET: JWT_SECRET },
  };
  const { code, output } = await run(["doctor", "--json"], env);
  const findings = JSON.parse(output) as { what: string; advice?: string }[];
  const adviceOn = (server: string) => findings.find(({ what }) => what.startsWith(server))?.advice;
  expect([code, adviceOn("Redis"), adviceOn("NATS")]).toEqual([
    1,
    "correct the user, the password or the certificate",
    expect.stringMatching(/^start nats-server there/),
  ]);
});
