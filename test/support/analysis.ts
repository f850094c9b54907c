import { v7 } from "uuid";
import { ANALYSIS_MIGRATIONS, startAnalysisWorker } from "../../src/analysis/index.js";
import { createRequests } from "../../src/analysis/requests.nats.js";
import { statusOf } from "../../src/analysis/saga.js";
import type { Post } from "../../src/analysis/sources/source.js";
import { createAnalysisStore } from "../../src/analysis/store.sql.js";
import type { AnalysisRequest } from "../../src/contracts/analysis.js";
import { ANALYSIS_REQUESTED, CONSUMER, STREAM } from "../../src/contracts/subjects.js";
import { SuspectLock } from "../../src/delivery/process.js";
import { allOf } from "../../src/kernel/concurrency.js";
import { encodeId } from "../../src/kernel/ids.js";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { createBucket } from "../../src/platform/nats/bucket.js";
import type { Consuming } from "../../src/platform/nats/consume/consume.js";
import type { Publish } from "../../src/platform/nats/publish.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { createCalibration } from "../../src/rewards/calibration.sql.js";
import { REWARDS_MIGRATIONS, startRewards } from "../../src/rewards/index.js";
import { startConsumer } from "../../src/roles/consumers.js";
import type { Erased } from "../../src/state/erased/erasures.js";
import { RECENT_KEY } from "../../src/state/keys.js";
import { erasedOn } from "./erased.js";
import { eventually } from "./eventually.js";
import { type NatsBench, openNats } from "./nats.js";
import { openRedis, type RedisBench } from "./redis.js";
import { redisStateOn, stateOn } from "./state.js";

/** Posts of an account, or an error in their place. */
export type ReadPosts = (account: string) => readonly Post[];

export interface SagaBench {
  readonly redis: RedisBench;
  readonly nats: NatsBench;
  readonly db: Db;
  /** The source of the next analyses; tests replace it. */
  posts: ReadPosts;
  /** Called before the workers publish to a subject, and waited for; may throw in the place of NATS. */
  publishing: (subject: string) => unknown;
  /** Reads of each account. */
  readonly reads: Map<string, number>;
  ask(asked?: Partial<AnalysisRequest>): Promise<AnalysisRequest>;
  /** Publishes the same request as one more message. */
  askAgain(request: AnalysisRequest): Promise<void>;
  listen(user: string): Promise<void>;
  statusOf(request: AnalysisRequest): Promise<string>;
  /** Waits until nothing is left in the queue and in the events. */
  settled(patienceMs?: number): Promise<void>;
  bodies(stream: string, subject?: string): Promise<Record<string, unknown>[]>;
  /** Asserts that each request has one end, and each completed one a reward, an event and at most one notification. */
  faults(requests: readonly AnalysisRequest[]): Promise<string[]>;
  readonly erased: Erased;
  /** Marks a user, and forgets them as both roles do. */
  erase(user: string): Promise<void>;
  /** Forgets a user as one role does. */
  forget(part: "analyses" | "rewards", user: string, stopping?: AbortSignal): Promise<void>;
  startWorkers(): void;
  stopWorkers(): Promise<void>;
  close(): Promise<void>;
}

export const post = (createdAt: number, likes = 1): Post => ({ createdAt, likes, shares: 0, replies: 0, quotes: 0 });

const ACK_WAIT_MS = 2_000;
const CONFIG = {
  delivery: { maxAttempts: 12, retryBaseMs: 5 },
  nats: { ackWaitMs: ACK_WAIT_MS },
} as const;

/** The two workers of the saga in this process, on servers of their own and a database of the caller. */
export async function openSaga(db: Db): Promise<SagaBench> {
  await migrate(db, [ANALYSIS_MIGRATIONS, REWARDS_MIGRATIONS], silent);
  const [redis, nats] = await Promise.all([openRedis(), openNats()]);
  await applyTopology(nats.manager, { replicas: 1, ackWaitMs: ACK_WAIT_MS }, silent);
  const requests = createRequests(createBucket(nats.connection, nats.publish, "ANALYSES"));
  const store = createAnalysisStore(db);
  const running: { close(): Promise<void> }[] = [];
  const erased = erasedOn(redis.scripts, nats);
  const publish = async (request: AnalysisRequest, id: string): Promise<void> => {
    const body = Buffer.from(JSON.stringify(request));
    await nats.publish({ subject: ANALYSIS_REQUESTED, body, id });
  };
  const bodies: SagaBench["bodies"] = async (stream, subject) => {
    const { state } = await nats.manager.streams.info(stream);
    const found: Record<string, unknown>[] = [];
    for (let seq = state.first_seq; seq > 0 && seq <= state.last_seq; seq++) {
      const message = await nats.manager.streams.getMessage(stream, { seq }).catch(() => undefined);
      if (message && (subject === undefined || message.subject === subject)) found.push(message.json());
    }
    return found;
  };
  const bench: SagaBench = {
    redis,
    nats,
    db,
    erased,
    erase: async (user) => {
      await erased.record(user, 1);
      await allOf([bench.forget("analyses", user), bench.forget("rewards", user)]);
    },
    forget: async (part, user, stopping = new AbortController().signal) => {
      const own = startOwn(bench);
      const { forget } = part === "analyses" ? own.worker : own.rewards;
      try {
        await forget(user, { stopping, left: async () => undefined });
      } finally {
        await Promise.all([own.worker.close(), own.rewards.close()]);
      }
    },
    posts: () => [post(Date.now() - 1_000)],
    publishing: () => undefined,
    reads: new Map(),
    async ask(asked = {}) {
      const request: AnalysisRequest = {
        analysis_id: v7(),
        user_id: "ada",
        did: "bob",
        type: "flow",
        tier: "DRIFT",
        requested_at: new Date().toISOString(),
        ...asked,
      };
      await requests.record(request);
      await publish(request, request.analysis_id);
      return request;
    },
    askAgain: (request) => publish(request, v7()),
    listen: async (user) => void (await redis.raw.zadd(RECENT_KEY, Date.now(), encodeId(user))),
    async statusOf({ user_id, analysis_id }) {
      const facts = await requests.find(user_id, analysis_id);
      return facts ? statusOf(facts, await store.find(user_id, analysis_id)) : "unknown";
    },
    settled: (patienceMs) =>
      eventually(
        async () => {
          // Not by the messages in the queue: a server that was killed keeps some that were acked.
          const analysis = await nats.manager.consumers.info(STREAM.timeline, CONSUMER.analysis);
          const rewards = await nats.manager.consumers.info(STREAM.timelineEvents, CONSUMER.rewards);
          const open = [analysis, rewards].reduce((sum, one) => sum + one.num_pending + one.num_ack_pending, 0);
          return open === 0 || `${open} messages are left`;
        },
        "the saga is settled",
        patienceMs,
      ),
    bodies,
    faults: (asked) => faultsOf(bench, asked),
    startWorkers: () => void running.push(...startBoth(bench)),
    stopWorkers: async () => void (await Promise.all(running.splice(0).map((one) => one.close()))),
    close: async () => {
      await bench.stopWorkers();
      await nats.close();
      await redis.close();
    },
  };
  return bench;
}

/** Starts what both roles do, without their consumers. */
function startOwn(bench: SagaBench) {
  const { redis, nats, db, erased } = bench;
  const publish: Publish = async (message) => {
    await bench.publishing(message.subject);
    return nats.publish(message);
  };
  const state = { ...stateOn(redis.scripts, { ...nats, publish }), erased };
  const common = { publish, state, nats: nats.connection, db, settleMs: 0, log: silent };
  const worker = startAnalysisWorker({
    ...common,
    sourceOf: (account) => ({
      async *posts() {
        bench.reads.set(account, (bench.reads.get(account) ?? 0) + 1);
        yield* bench.posts(account);
      },
    }),
    pathPrefix: "",
  });
  return { worker, rewards: startRewards(common) };
}

function startBoth(bench: SagaBench): { close(): Promise<void> }[] {
  const { redis, nats } = bench;
  const { worker, rewards } = startOwn(bench);
  const state = redisStateOn(redis.scripts);
  const connections = { publish: nats.publish, state, nats: nats.connection, topology: { check: () => undefined } };
  const deps = { config: CONFIG, connections, suspectLock: new SuspectLock(), log: silent } as unknown as Parameters<
    typeof startConsumer
  >[0];
  const consuming: Consuming[] = [
    startConsumer(deps, {
      stream: STREAM.timeline,
      consumer: CONSUMER.analysis,
      handler: worker.handler,
      maxAttempts: worker.maxAttempts,
      storeDeadLetter: worker.storeDeadLetter(nats.publish),
    }),
    startConsumer(deps, { stream: STREAM.timelineEvents, consumer: CONSUMER.rewards, handler: rewards.reward }),
  ];
  return [...consuming.map((one) => ({ close: () => one.close(2_000) })), worker, rewards];
}

async function faultsOf(bench: SagaBench, requests: readonly AnalysisRequest[]): Promise<string[]> {
  const letters = await bench.bodies(STREAM.dlq);
  const completions = await bench.bodies(STREAM.timelineEvents, "events.timeline.completed");
  const earned = await bench.bodies(STREAM.gamification);
  const told = await bench.bodies(STREAM.notify);
  const rows = await bench.db.query<{ event_id: string }>("SELECT event_id FROM xp_transactions");
  const faults: string[] = [];
  const expectCount = (what: string, found: number, wanted: number): void => {
    if (found !== wanted) faults.push(`${what}: ${found} instead of ${wanted}`);
  };
  for (const request of requests) {
    const id = request.analysis_id;
    const status = await bench.statusOf(request);
    const isLetter = letters.some((letter) => letter["analysis_id"] === id);
    if (status !== "completed" && status !== "failed" && !isLetter) faults.push(`${id}: is ${status}`);
    const done = status === "completed" ? 1 : 0;
    const of = (some: readonly Record<string, unknown>[], event?: string): number =>
      some.filter((one) => (one["analysis_id"] ?? one["event_id"]) === id && (!event || one["event"] === event)).length;
    expectCount(`${id}: completed events`, of(completions), done);
    expectCount(`${id}: rewards`, of(rows as unknown as Record<string, unknown>[]), done);
    expectCount(`${id}: earned events`, of(earned), done);
    if (of(told, "analysis_completed") > 1) faults.push(`${id}: told more than once`);
    if (of(told, "xp_earned") > 1) faults.push(`${id}: its reward was told more than once`);
  }
  expectCount("users whose total drifted", await createCalibration(bench.db)(), 0);
  return faults;
}
