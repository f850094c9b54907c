import { expect, test } from "@jest/globals";
import { AppError } from "../../../../src/kernel/errors.js";
import { silent } from "../../../../src/kernel/logger.js";
import {
  ANSWER_AFTER_MS,
  createDeadLetterApi,
  type DeadLetterApi,
} from "../../../../src/operators/dead-letters/api.js";
import { createOperations } from "../../../../src/operators/dead-letters/operations.js";
import type { RedriveDeps } from "../../../../src/operators/dead-letters/redrive.js";
import type { DeadLetterSummary, StoredDeadLetter } from "../../../../src/operators/dead-letters/stored-dead-letter.js";
import { requestIn } from "../../../../src/platform/nats/service.js";
import { deadLetterWith, redriveBench } from "../../../support/dead-letters.js";
import { becomes } from "../../../support/eventually.js";

/** Answers as the service does, once its patience is at an end; a request may be text that is no JSON. */
function setup(
  deadLetters: readonly StoredDeadLetter[],
  stated: Partial<RedriveDeps> = {},
  { maxAnswerBytes = 1_000_000, patience = new Promise<void>(() => undefined) } = {},
) {
  const bench = redriveBench(deadLetters, stated);
  const waited: number[] = [];
  const stop = new AbortController();
  const api = createDeadLetterApi({
    operations: createOperations(bench.deps),
    maxAnswerBytes: () => maxAnswerBytes,
    pause: async (ms) => {
      waited.push(ms);
      await patience;
    },
    stopping: stop.signal,
    log: silent,
  });
  const ask = async (endpoint: keyof DeadLetterApi, request: unknown): Promise<unknown> =>
    api[endpoint](requestIn(Buffer.from(typeof request === "string" ? request : JSON.stringify(request))));
  return { ...bench, ask, waited, stop };
}

/** A promise, and what resolves it. */
function latch(): [Promise<void>, () => void] {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return [opened, () => open()];
}

const three = [1, 2, 3].map((seq) => deadLetterWith({ seq }));
const seqsOf = (answer: unknown) => (answer as DeadLetterSummary[]).map(({ seq }) => seq);
const many = Array.from({ length: 150 }, (_, at) => deadLetterWith({ seq: at + 1 }));

test("list answers the oldest dead letters, a hundred unless told otherwise, from where it is told", async () => {
  const { ask } = setup(many);
  expect(seqsOf(await ask("list", "{}"))).toEqual(Array.from({ length: 100 }, (_, at) => at + 1));
  expect(seqsOf(await ask("list", ""))).toHaveLength(100);
  expect(seqsOf(await ask("list", { after: 100 }))).toHaveLength(50);
  expect(seqsOf(await ask("list", { after: 3, limit: 2 }))).toEqual([4, 5]);
  expect(seqsOf(await ask("list", { reason: "poison" }))).toEqual([]);
  expect((await ask("list", { limit: 1 })) as unknown).toEqual([three[0]?.summary]);
});

test("a request that names too many dead letters gets a short error", async () => {
  const { ask } = setup(three);
  for (const seqs of [Array(330_000).fill(""), Array(10_000).fill(""), Array(10_001).fill(1)]) {
    const error = await ask("redrive", { seqs }).catch((refused: unknown) => refused);
    expect(error).toMatchObject({ code: "invalid", message: expect.stringMatching(/^seqs/) });
    expect((error as Error).message.length).toBeLessThanOrEqual(1_024);
  }
  const missing = await ask("rm", { seqs: Array.from({ length: 10_000 }, (_, at) => at + 10) }).catch(
    (refused: unknown) => refused,
  );
  expect(missing).toMatchObject({ code: "notfound", message: expect.stringContaining("and 9980 more") });
});

test("groups fit one message: those without room for all their dead letters name the oldest few", async () => {
  const others = [151, 152].map((seq) => deadLetterWith({ seq, headers: { "Dlq-Error": "another" } }));
  const { ask } = setup([...many, ...others], {}, { maxAnswerBytes: 700 });
  const groups = await ask("groups", {});
  expect(Buffer.byteLength(JSON.stringify(groups))).toBeLessThanOrEqual(700);
  expect(groups).toMatchObject([
    { count: 150, seqs: [1, 2, 3, 4, 5] },
    { count: 2, seqs: [151, 152] },
  ]);
  const { ask: askForFew } = setup([...many, ...others], {}, { maxAnswerBytes: 450 });
  expect(await askForFew("groups", {})).toMatchObject([{ count: 150 }]);
});

test("a list fits one message, and the next request continues it", async () => {
  const { ask } = setup(many, {}, { maxAnswerBytes: 2_000 });
  const first = await ask("list", {});
  expect(Buffer.byteLength(JSON.stringify(first))).toBeLessThanOrEqual(2_000);
  const seqs = seqsOf(first);
  expect(seqs.length).toBeGreaterThan(2);
  expect(seqsOf(await ask("list", { after: seqs.length }))[0]).toBe(seqs.length + 1);
});

test("show answers one dead letter, without its body if that does not fit a message", async () => {
  expect(await setup(three).ask("show", { seqs: [2] })).toMatchObject({ seq: 2, body_encoding: "json" });
  const large = deadLetterWith({ json: { text: "x".repeat(3_000) } });
  expect(await setup([large], {}, { maxAnswerBytes: 2_000 }).ask("show", { seqs: [17] })).toMatchObject({
    body_encoding: "omitted",
    body: null,
    size: 3_011,
  });
});

test.each<[keyof DeadLetterApi, unknown, RegExp]>([
  ["list", "nonsense", /not JSON/],
  ["list", "[]", /^request: /],
  ["list", { limit: 0 }, /^limit: /],
  ["list", { after: -1 }, /^after: /],
  ["list", { reason: "bad luck" }, /^reason: must be one of invalid, /],
  ["list", { since: "yesterday" }, /^since: must be a time ago/],
  ["list", { seqs: [1] }, /seqs/],
  ["show", {}, /^seqs: /],
  ["show", { seqs: [1, 2] }, /^seqs: must name one dead letter/],
  ["show", { seqs: ["1"] }, /^seqs.0: must be the sequence of a dead letter/],
  ["redrive", {}, /^seqs: say which dead letters/],
  ["redrive", { seqs: [1], all: true }, /^seqs: name sequences/],
  ["redrive", { all: true, rate: 0 }, /^rate: /],
  ["redrive", { all: "yes" }, /^all: /],
  ["redrive", { all: true, force: true }, /force/],
  ["rm", { all: true, rate: 5 }, /rate/],
  ["rm", { event: "party" }, /^event: must be one of drop_created/],
])("%s refuses %j and names the field", async (endpoint, request, why) => {
  const { ask, held } = setup(three);
  const error = await ask(endpoint, request).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(AppError);
  expect(error).toMatchObject({ code: "invalid", message: expect.stringMatching(why) });
  expect(held.size).toBe(3);
});

test.each(["show", "redrive", "rm"] as const)(
  "%s of a missing dead letter answers notfound and changes nothing",
  async (endpoint) => {
    const { ask, held } = setup(three);
    const seqs = endpoint === "show" ? [9] : [1, 9];
    await expect(ask(endpoint, { seqs })).rejects.toMatchObject({
      code: "notfound",
      message: expect.stringContaining("9"),
    });
    expect(held.size).toBe(3);
  },
);

test("redrive reports on each dead letter; a dry run changes nothing, a limit takes the oldest", async () => {
  const { ask, published, held } = setup([...three, deadLetterWith({ seq: 4, subject: "dlq.toolarge.drop_created" })]);
  const all = { redriven: [1, 2, 3], refused: [{ seq: 4, why: expect.any(String) }], failed: [], overtaken: [] };
  expect(await ask("redrive", { all: true, dry_run: true })).toEqual(all);
  expect([published.length, held.size]).toEqual([0, 4]);
  expect(await ask("redrive", { reason: "exhausted", limit: 1 })).toMatchObject({ redriven: [1] });
  expect(await ask("redrive", { all: true })).toEqual({ ...all, redriven: [2, 3] });
  expect([...held.keys()]).toEqual([4]);
});

test("rm answers with the removed sequences", async () => {
  const { ask, held, published } = setup(three);
  expect(await ask("rm", { seqs: [2] })).toEqual({ removed: [2], failed: [] });
  expect(await ask("rm", { all: true, dry_run: true })).toEqual({ removed: [1, 3], failed: [] });
  expect([[...held.keys()], published]).toEqual([[1, 3], []]);
});

test("a long redrive is answered with its progress, goes on, and excludes another one", async () => {
  const [held, release] = latch();
  const [patience, loseIt] = latch();
  const publish = async ({ id }: { readonly id: string }): Promise<void> => {
    if (!id.startsWith("redrive:2:")) return;
    loseIt();
    await held;
  };
  const bench = setup(three, { publish }, { patience });
  expect(await bench.ask("redrive", { all: true })).toEqual({
    ...{ running: true, redriven: [1], refused: [], failed: [], overtaken: [] },
  });
  expect(bench.waited).toEqual([ANSWER_AFTER_MS]);
  await expect(bench.ask("redrive", { all: true })).rejects.toMatchObject({
    ...{ code: "conflict", message: expect.stringContaining("already") },
  });
  release();
  // Refused as long as the first one is under way.
  await becomes(async () => {
    expect(await bench.ask("redrive", { all: true })).toMatchObject({ redriven: [] });
  });
  expect(bench.held.size).toBe(0);
});

test("after a refused request the next one may redrive", async () => {
  const { ask } = setup(three);
  await expect(ask("redrive", { seqs: [9] })).rejects.toMatchObject({ code: "notfound" });
  expect(await ask("redrive", { seqs: [1] })).toMatchObject({ redriven: [1] });
});

test("an answer too large for a message has the first of each list, and the lengths", async () => {
  const { ask } = setup(many, {}, { maxAnswerBytes: 500 });
  expect(await ask("redrive", { all: true })).toMatchObject({
    redriven: Array.from({ length: 100 }, (_, at) => at + 1),
    counts: { redriven: 150, refused: 0, failed: 0, overtaken: 0 },
  });
});

test("a process that stops redrives no further dead letter", async () => {
  const { ask, stop, held } = setup(three);
  stop.abort();
  expect(await ask("redrive", { all: true })).toMatchObject({
    redriven: [],
    failed: [{ seq: 1 }, { seq: 2 }, { seq: 3 }],
  });
  expect(held.size).toBe(3);
});
