/** The peer of the benchmark `queue`: a BullMQ worker that writes a drop to the homes named in its job. */
import { readFileSync } from "node:fs";
import { Worker } from "bullmq";
import { Redis } from "ioredis";
import type { DropJob, QueueOrder } from "./queue-shared.js";

const SCRIPT = readFileSync(new URL("queue-bullmq.lua", import.meta.url), "utf8");

process.once("message", ({ port, queue, concurrency, prefix, entries, trimTo }: QueueOrder) => {
  const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
  const redis = new Redis(connection);
  redis.defineCommand("addDrop", { numberOfKeys: 0, lua: SCRIPT });
  const { addDrop } = redis as unknown as { addDrop(...args: readonly (string | number)[]): Promise<number> };
  const worker = new Worker<DropJob>(
    queue,
    async ({ data: { drop_id, created_at, users } }) => {
      await addDrop.call(redis, prefix, entries, trimTo, created_at, drop_id, ...users);
    },
    { connection, concurrency },
  );
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
