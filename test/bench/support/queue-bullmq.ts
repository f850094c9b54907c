/** The peer of the benchmark `queue`: a BullMQ worker that writes a drop to the homes named in its job. */
import { readFileSync } from "node:fs";
import { Worker } from "bullmq";
import { Redis } from "ioredis";
import type { DropJob, QueueOrder } from "./queue-shared.js";

const SCRIPT = readFileSync(new URL("queue-bullmq.lua", import.meta.url), "utf8");

type Write = (job: DropJob) => Promise<unknown>;

process.once("message", (order: QueueOrder) => {
  const { port, queue, concurrency, by } = order;
  const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
  const write = (by === "script" ? byScript : byCommands)(new Redis(connection), order);
  const worker = new Worker<DropJob>(queue, ({ data }) => write(data), { connection, concurrency });
  let [completed, told] = [0, 0];
  // Emitted after the job has left the queue.
  worker.on("completed", () => completed++);
  worker.on("failed", (_, error) => process.send?.({ fault: String(error) }));
  setInterval(() => {
    if (completed === told) return;
    told = completed;
    process.send?.({ completed });
  }, 5);
  void worker.waitUntilReady().then(() => process.send?.({ completed: 0 }));
});

function byScript(redis: Redis, { prefix, entries, trimTo }: QueueOrder): Write {
  redis.defineCommand("addDrop", { numberOfKeys: 0, lua: SCRIPT });
  const { addDrop } = redis as unknown as { addDrop(...args: readonly (string | number)[]): Promise<number> };
  return ({ drop_id, created_at, users }) =>
    addDrop.call(redis, prefix, entries, trimTo, created_at, drop_id, ...users);
}

function byCommands(redis: Redis, { prefix, entries, trimTo }: QueueOrder): Write {
  return async ({ drop_id, created_at, users }) => {
    const keys = users.map((user) => prefix + user);
    const adds = redis.pipeline();
    for (const key of keys) adds.zadd(key, created_at, drop_id).zcard(key);
    const replies = await repliesOf(adds);
    const full = keys.filter((_, at) => (replies[2 * at + 1] as number) > entries);
    if (full.length === 0) return;
    const trims = redis.pipeline();
    for (const key of full) trims.zremrangebyrank(key, 0, -(trimTo + 1));
    await repliesOf(trims);
  };
}

async function repliesOf(pipeline: ReturnType<Redis["pipeline"]>): Promise<unknown[]> {
  return ((await pipeline.exec()) ?? []).map(([error, reply]) => {
    if (error) throw error;
    return reply;
  });
}
