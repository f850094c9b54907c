import { expect, test } from "@jest/globals";
import { Drop } from "../../../../src/gen/avion/posts.js";
import { AppError } from "../../../../src/kernel/errors.js";
import { hookFailpoints } from "../../../../src/kernel/failpoints.js";
import type { Upstreams } from "../../../../src/operators/dead-letters/destination.js";
import { createOperations } from "../../../../src/operators/dead-letters/operations.js";
import { type RedriveDeps, type Report, redrive } from "../../../../src/operators/dead-letters/redrive.js";
import type { StoredDeadLetter } from "../../../../src/operators/dead-letters/stored-dead-letter.js";
import {
  bridgeDeadLetter,
  deadLetterWith,
  FAILED_AT,
  redriveBench,
  type Stated,
} from "../../../support/dead-letters.js";
import { failpointsOf } from "../../../support/failpoints.js";
import { dropPageOf } from "../../../support/memory-upstreams.js";

const DAY = 86_400_000;
const NONE: Report = { redriven: [], refused: [], failed: [], overtaken: [] };
const old = { "Dlq-First-Seen": new Date(FAILED_AT - 7 * DAY).toISOString() };
const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

async function redriveOne(deadLetter: StoredDeadLetter, stated: Partial<RedriveDeps> = {}) {
  const bench = redriveBench([deadLetter], stated);
  const report = await redrive(bench.deps, [deadLetter.summary.seq]);
  return { ...bench, report };
}

test("a dead letter of a consumer goes back where it was, body and carried headers untouched, under an id of its own", async () => {
  const body = Buffer.of(0, 255, 10);
  const carried = { traceparent: "00-aa-bb-01", Producer: "posts" };
  const headers = { ...carried, "Nats-Expected-Stream": "X", "Nats-Msg-Id": "dlq:DROPS:4:1", "Dlq-Redrive-Count": "2" };
  const { published, held, report } = await redriveOne(deadLetterWith({ body, headers }));
  expect(published).toEqual([
    {
      subject: "drops.created",
      stream: "DROPS",
      id: "redrive:17:2026-01-02T03:03:05.678Z:3",
      body,
      headers: { ...carried, "Dlq-First-Seen": "2026-01-02T03:03:05.678Z", "Dlq-Redrive-Count": "3" },
    },
  ]);
  expect(report).toEqual({ ...NONE, redriven: [17] });
  expect(held.size).toBe(0);
});

test("only an event older than ten minutes is published silently", async () => {
  const age = (ms: number) => ({ "Dlq-First-Seen": new Date(FAILED_AT + 60_000 - ms).toISOString() });
  const young = await redriveOne(deadLetterWith({ headers: age(600_000) }));
  expect(young.published[0]?.headers).not.toHaveProperty("Timeline-Silent");
  const aged = await redriveOne(deadLetterWith({ headers: age(600_001) }));
  expect(aged.published[0]?.headers).toMatchObject({ "Timeline-Silent": "1" });
});

test("dead letters are redriven in the order given, each deleted only after its publishing was acknowledged", async () => {
  const trace: string[] = [];
  const bench = redriveBench([deadLetterWith({ seq: 1 }), deadLetterWith({ seq: 2 })]);
  const deps = {
    ...bench.deps,
    publish: async ({ id }: { id: string }) => {
      trace.push(`publish ${id.split(":")[1]}`);
      await new Promise(setImmediate);
      trace.push("acknowledged");
    },
    store: { ...bench.deps.store, remove: async (seq: number) => void trace.push(`delete ${seq}`) },
  };
  await redrive(deps, [1, 2]);
  expect(trace).toEqual(["publish 1", "acknowledged", "delete 1", "publish 2", "acknowledged", "delete 2"]);
});

test("a dead letter whose publishing or deleting fails is kept and reported, and those after it go on", async () => {
  const bench = redriveBench([1, 2, 3].map((seq) => deadLetterWith({ seq })));
  const deps: RedriveDeps = {
    ...bench.deps,
    publish: async ({ id }) => {
      if (id.startsWith("redrive:1:")) throw new AppError("failed", "full");
    },
    store: {
      ...bench.deps.store,
      remove: async (seq) => {
        if (seq === 2) throw new AppError("unavailable", "away");
        bench.held.delete(seq);
      },
    },
  };
  expect(await redrive(deps, [1, 2, 3, 4])).toEqual({
    ...NONE,
    redriven: [3],
    failed: [
      { seq: 1, why: "full" },
      { seq: 2, why: "it was published again, but not deleted: redrive it once more (away)" },
      { seq: 4, why: "it is not there any more" },
    ],
  });
  expect([...bench.held.keys()]).toEqual([1, 2]);
});

test("a redrive interrupted after the publishing publishes the same id when repeated", async () => {
  const { deps, published, held } = redriveBench([deadLetterWith()]);
  hookFailpoints(failpointsOf("redriven=throw@17"));
  expect((await redrive(deps, [17])).failed).toHaveLength(1);
  hookFailpoints(undefined);
  expect(held.size).toBe(1);
  expect(await redrive(deps, [17])).toEqual({ ...NONE, redriven: [17] });
  expect(new Set(published.map(({ id }) => id)).size).toBe(1);
});

test("a redrive gives up after three dead letters that met an unavailable server, without waiting for the others", async () => {
  const seqs = Array.from({ length: 50 }, (_, at) => at + 1);
  let asked = 0;
  const { deps, clock } = redriveBench(
    seqs.map((seq) => deadLetterWith({ seq })),
    {
      publish: async () => {
        asked++;
        throw new AppError("unavailable", "no answer");
      },
    },
  );
  const started = clock();
  const { failed } = await redrive(deps, seqs, { rate: 1 });
  expect([asked, failed.length, clock() - started]).toEqual([3, 50, 2_000]);
  expect(failed.at(-1)?.why).toMatch(/^not tried/);
});

test("a removal ends after three dead letters that met an unavailable server, and where it is stopped", async () => {
  const seqs = [1, 2, 3, 4, 5];
  const bench = redriveBench(seqs.map((seq) => deadLetterWith({ seq })));
  const asked: number[] = [];
  const away = async (seq: number): Promise<void> => {
    asked.push(seq);
    throw new AppError("unavailable", "no answer");
  };
  const { failed } = await createOperations({ ...bench.deps, store: { ...bench.deps.store, remove: away } }).remove(
    seqs,
  );
  expect([asked, failed.map(({ seq }) => seq)]).toEqual([[1, 2, 3], seqs]);
  const stop = new AbortController();
  const removal = await createOperations(bench.deps).remove(seqs, {
    stopping: stop.signal,
    onProgress: ({ removed }) => void (removed.length === 2 && stop.abort()),
  });
  expect(removal).toMatchObject({ removed: [1, 2], failed: [{ seq: 3 }, { seq: 4 }, { seq: 5 }] });
});

test("a redrive keeps to its rate", async () => {
  const seqs = Array.from({ length: 21 }, (_, at) => at + 1);
  const { deps, clock } = redriveBench(seqs.map((seq) => deadLetterWith({ seq })));
  const started = clock();
  await redrive(deps, seqs, { rate: 10 });
  expect(clock() - started).toBe(2_000);
});

test("a dry run decides everything, waits for nothing and changes nothing", async () => {
  const deadLetters = [deadLetterWith({ seq: 1 }), deadLetterWith({ seq: 2, subject: "dlq.toolarge.drop_created" })];
  const { deps, published, held, clock } = redriveBench(deadLetters);
  const started = clock();
  const report = await redrive(deps, [1, 2], { dryRun: true, rate: 1 });
  expect(report).toMatchObject({ redriven: [1], refused: [{ seq: 2 }] });
  expect([published.length, held.size, clock() - started]).toEqual([0, 2, 0]);
});

test("a stopped redrive finishes the dead letter in flight and reports the others", async () => {
  const stop = new AbortController();
  const { deps, held } = redriveBench([1, 2, 3].map((seq) => deadLetterWith({ seq })));
  const onProgress = ({ redriven }: Report): void => {
    if (redriven.length === 1) stop.abort();
  };
  const report = await redrive(deps, [1, 2, 3], { stopping: stop.signal, onProgress });
  expect(report.redriven).toEqual([1]);
  expect(report.failed.map(({ seq }) => seq)).toEqual([2, 3]);
  expect(held.size).toBe(2);
});

test.each<[string, StoredDeadLetter, RegExp]>([
  ["cut", deadLetterWith({ subject: "dlq.toolarge.drop_created" }), /only its beginning was kept/],
  ["still not JSON", bridgeDeadLetter("drop_created", Buffer.from("nonsense")), /is not JSON/],
  ["of a channel nobody knows", bridgeDeadLetter("gossip", json({})), /names no stream/],
  [
    "poison, and of no stream",
    bridgeDeadLetter("drop_created", json({}), { subject: "dlq.poison.drop_created" }),
    /names no stream/,
  ],
  ["back to a subject of many", deadLetterWith({ headers: { "Dlq-Subject": "drops.*" } }), /is no subject/],
  [
    "back to a subject that is two lines",
    deadLetterWith({ headers: { "Dlq-Subject": "drops.created\r\nPUB x" } }),
    /is no subject/,
  ],
  ["back to no subject", deadLetterWith({ headers: { "Dlq-Subject": "" } }), /is no subject/],
  [
    "logged and still invalid",
    deadLetterWith({ subject: "dlq.invalid.drop_created", json: { drop_id: "" } }),
    /drop_id/,
  ],
  [
    "a job and still invalid",
    deadLetterWith({
      subject: "dlq.invalid.fanout_job",
      json: {},
      headers: { "Dlq-Stream": "FANOUT", "Dlq-Subject": "fanout.job.add" },
    }),
    /action/,
  ],
])("a dead letter that is %s is refused and kept", async (_, deadLetter, why) => {
  const { report, published, held } = await redriveOne(deadLetter);
  expect(report).toEqual({ ...NONE, refused: [{ seq: 17, why: expect.stringMatching(why) }] });
  expect([published.length, held.size]).toEqual([0, 1]);
});

test("a payload of a bridge that has become valid is admitted under the id that every bridge gives it", async () => {
  const payload = { drop_id: "d1", user_id: "a", visibility: "public", created_at: "2026-01-02T03:05:00Z", extra: 1 };
  const deadLetter = bridgeDeadLetter("drop_created", json({ ...payload, traceparent: "00-aa-bb-01" }));
  const { published, report, held } = await redriveOne(deadLetter);
  expect(published).toMatchObject([{ subject: "drops.created", stream: "DROPS", id: "drop_created:d1" }]);
  expect(published[0]?.headers).toEqual({
    traceparent: "00-aa-bb-01",
    "Dlq-First-Seen": deadLetter.summary.first_seen,
    "Dlq-Redrive-Count": "1",
  });
  expect(JSON.parse(Buffer.from(published[0]?.body ?? []).toString())).toEqual({
    drop_id: "d1",
    user_id: "a",
    visibility: "public",
    created_at: Date.parse("2026-01-02T03:05:00Z"),
    traceparent: "00-aa-bb-01",
  });
  expect([report.redriven, held.size]).toEqual([[17], 0]);
});

interface Known {
  readonly drops?: readonly (readonly [id: string, created_at: number])[];
  readonly following?: readonly string[];
}

/** Upstreams that know this, in pages of two. */
function upstreamsWith({ drops = [], following = [] }: Known, asked: string[] = []): Upstreams {
  const all = drops.map(([drop_id, created_at]) => Drop.create({ drop_id, created_at }));
  return {
    drops: async (author, { score: before, drop }) => {
      asked.push(author);
      const from =
        drop === ""
          ? all.findIndex(({ created_at }) => created_at < before)
          : all.findIndex(({ drop_id }) => drop_id === drop) + 1;
      return dropPageOf(from < 0 ? [] : all.slice(from, from + 2));
    },
    following: async (user, token) => {
      asked.push(user);
      const from = Number(token);
      return { ids: following.slice(from, from + 2), next: from + 2 < following.length ? String(from + 2) : "" };
    },
  };
}

const AT = 1_700_000_000_000;
const job = (action: string) => ({
  ...{ action, event: "drop_created", drop_id: "d1", user_id: "42", created_at: AT },
  ...{ admitted_at: AT, generation: "g", user_ids: ["u"] },
});
const onFanout = { "Dlq-Stream": "FANOUT", "Dlq-Subject": "fanout.job.add", "Dlq-Consumer": "worker" };
const edge = { follower_id: "f", following_id: "g", version: 3 };
const on = (subject: string) => ({ ...old, "Dlq-Subject": subject });
const newer = [1, 2, 3, 4, 5].map((n) => [`n${n}`, AT + 10 - n] as const);

test.each<[string, Stated, Known]>([
  ["a drop that is still shown", { headers: old }, { drops: [["d1", AT]] }],
  [
    "a drop behind newer ones of its author",
    { headers: old },
    { drops: [...newer, ["d0", AT], ["d3", AT], ["d1", AT]] },
  ],
  ["a job that removes", { headers: { ...old, ...onFanout }, json: job("remove") }, {}],
  ["a deletion", { headers: on("drops.deleted"), json: { drop_id: "d1", user_id: "42" } }, {}],
  [
    "a remote drop with an author",
    { headers: on("drops.ap_received"), json: { drop_id: "d1", user_id: "r", created_at: AT } },
    { drops: [["d1", AT]] },
  ],
  ["a follow that stands", { headers: on("graph.followed"), json: edge }, { following: ["a", "b", "c", "g"] }],
  ["an unfollow that stands", { headers: on("graph.unfollowed"), json: edge }, { following: ["a", "b", "c"] }],
])("older than the log, %s is redriven", async (_, stated, known) => {
  const { report, published } = await redriveOne(deadLetterWith(stated), { upstreams: upstreamsWith(known) });
  expect(report).toEqual({ ...NONE, redriven: [17] });
  expect(published).toHaveLength(1);
});

test.each<[string, Stated, Known]>([
  ["a drop that is not shown any more", { headers: old }, { drops: [...newer, ["d0", AT - 1]] }],
  ["a drop of an author without any", { headers: old }, {}],
  [
    "a remote drop that is gone",
    { headers: on("drops.ap_received"), json: { drop_id: "d1", user_id: "r", created_at: AT } },
    {},
  ],
  ["a follow that was taken back", { headers: on("graph.followed"), json: edge }, { following: ["a", "b", "c"] }],
  [
    "an unfollow after which they follow again",
    { headers: on("graph.unfollowed"), json: edge },
    { following: ["a", "b", "g"] },
  ],
])("older than the log, %s is overtaken: removed, and not published", async (_, stated, known) => {
  const { report, published, held } = await redriveOne(deadLetterWith(stated), { upstreams: upstreamsWith(known) });
  expect(report).toEqual({ ...NONE, overtaken: [{ seq: 17, why: expect.stringMatching(/^overtaken: /) }] });
  expect([published.length, held.size]).toEqual([0, 0]);
});

test("an overtaken dead letter survives a dry run", async () => {
  const { deps, held } = redriveBench([deadLetterWith({ headers: old })], { upstreams: upstreamsWith({}) });
  expect((await redrive(deps, [17], { dryRun: true })).overtaken).toHaveLength(1);
  expect(held.size).toBe(1);
});

test("the upstreams are read only for dead letters older than the max_age of the log", async () => {
  const asked: string[] = [];
  const age = FAILED_AT + 60_000 - (FAILED_AT - 7 * DAY);
  const upstreams = upstreamsWith({ drops: [["d1", AT]] }, asked);
  const deadLetter = deadLetterWith({ headers: old });
  expect((await redriveOne(deadLetter, { upstreams, logAgeMs: async () => age })).report.redriven).toEqual([17]);
  expect(
    (await redriveOne(deadLetter, { upstreams, logAgeMs: async () => Number.POSITIVE_INFINITY })).report.redriven,
  ).toEqual([17]);
  expect(asked).toEqual([]);
  expect((await redriveOne(deadLetter, { upstreams, logAgeMs: async () => age - 1 })).report.redriven).toEqual([17]);
  expect(asked).toEqual(["42"]);
});

test("an old dead letter that cannot be checked is refused: no upstreams, no author, or followers of a forgotten time", async () => {
  const stale = deadLetterWith({ headers: { ...old, ...onFanout }, json: job("add") });
  const job17 = await redriveOne(stale, { upstreams: upstreamsWith({ drops: [["d1", AT]] }) });
  expect([job17.report.refused[0]?.why, job17.held.size]).toEqual([expect.stringMatching(/rebuild/), 1]);
  const edges = deadLetterWith({ headers: { ...old, ...onFanout, "Dlq-Subject": "fanout.edges.1" }, json: {} });
  const edges17 = await redriveOne(edges, { upstreams: upstreamsWith({}) });
  expect([edges17.report.refused[0]?.why, edges17.held.size]).toEqual([expect.stringMatching(/rebuild/), 1]);
  const unknown = await redriveOne(deadLetterWith({ headers: old }));
  expect(unknown.report.refused[0]?.why).toMatch(/TIMELINE_USER_SERVICE_ADDR and TIMELINE_POST_SERVICE_ADDR/);
  const remote = deadLetterWith({ headers: on("drops.ap_received"), json: { drop_id: "d1", created_at: AT } });
  const nameless = await redriveOne(remote, { upstreams: upstreamsWith({}) });
  expect(nameless.report.refused[0]?.why).toMatch(/names no author/);
  expect([unknown.held.size, nameless.held.size]).toEqual([1, 1]);
});

test("an old job of notifications is redriven: what it would tell people is left out where it is applied", async () => {
  const change = { user: "ada", kind: 3, actor: "bob", drop: "a1", byDrop: "a1", version: 1, rank: 0, active: true };
  const headers = { ...old, ...onFanout, "Dlq-Subject": "fanout.notifications.1" };
  const letter = (json: object) => deadLetterWith({ headers: { ...headers, "Dlq-Reason": "invalid" }, json });
  const good = letter({ changes: [{ ...change, at: AT, seq: 1, isSilent: false }] });
  expect((await redriveOne(good)).report.redriven).toEqual([17]);
  const bad = await redriveOne(letter({ changes: [{ ...change, at: AT, seq: 1 }] }));
  expect([bad.report.refused[0]?.why, bad.held.size]).toEqual([expect.stringMatching(/changes.0.isSilent/), 1]);
});

test("an old dead letter whose upstream does not answer is kept as failed", async () => {
  const upstreams: Upstreams = {
    ...upstreamsWith({}),
    drops: () => Promise.reject(new AppError("unavailable", "GetDropsByUserID: UNAVAILABLE")),
  };
  const { report, held } = await redriveOne(deadLetterWith({ headers: old }), { upstreams });
  expect(report).toEqual({ ...NONE, failed: [{ seq: 17, why: "GetDropsByUserID: UNAVAILABLE" }] });
  expect(held.size).toBe(1);
});

test("removing deletes what it is told, reports what could not be, and does nothing in a dry run", async () => {
  const { held, deps } = redriveBench([1, 2, 3].map((seq) => deadLetterWith({ seq })));
  expect(await createOperations(deps).remove([1, 2], { dryRun: true })).toEqual({ removed: [1, 2], failed: [] });
  expect(held.size).toBe(3);
  const remove = async (seq: number) => {
    if (seq === 2) throw new Error("away");
    await deps.store.remove(seq);
  };
  const failing = createOperations({ ...deps, store: { ...deps.store, remove } });
  expect(await failing.remove([1, 2, 3])).toEqual({ removed: [1, 3], failed: [{ seq: 2, why: "away" }] });
  expect([...held.keys()]).toEqual([2]);
});

test("a like that a bridge refused goes to ACTIVITY once it is valid, under the id of any other", async () => {
  const payload = { drop_id: "d1", author_id: "ada", user_id: "bob", kind: "like", active: true, version: 2 };
  const { published } = await redriveOne(bridgeDeadLetter("drop_reacted", json(payload)));
  const id = "drop_reacted:d1:bob:like:2";
  expect(published).toMatchObject([{ subject: "activity.reacted", stream: "ACTIVITY", id }]);
  expect(JSON.parse(Buffer.from(published[0]?.body ?? []).toString())).toEqual(payload);
  const refused = await redriveOne(bridgeDeadLetter("drop_reacted", json({ ...payload, kind: "share" })));
  expect(refused.report.refused).toEqual([{ seq: 17, why: expect.stringContaining("kind") }]);
});
