import { startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";
import type { createReadQueues } from "./queues.nats.js";

/** An hour: about 300 KB as JSON. */
const KEPT = 120;
const EVERY_MS = 30 * SECOND;
const CLOSE_MS = 500;

type ReadQueues = ReturnType<typeof createReadQueues>;

/** Keeps what the curves of the console need of the last hour; a new process begins with none. */
export function keepHistory(read: ReadQueues, { everyMs = EVERY_MS, kept = KEPT } = {}) {
  const samples: ReturnType<typeof thinned>[] = [];
  const loop = startLoop({
    everyMs,
    closeMs: CLOSE_MS,
    work: async () => {
      samples.push(thinned(await read()));
      samples.splice(0, samples.length - kept);
    },
  });
  return { read: async () => samples, close: loop.close };
}

const thinned = ({ at: time, streams, consumers }: Awaited<ReturnType<ReadQueues>>) => ({
  at: time,
  streams: streams.map(({ name, last_seq }) => ({ name, last_seq })),
  consumers: consumers.map(({ about: _about, redelivered: _redelivered, ...rest }) => rest),
});
