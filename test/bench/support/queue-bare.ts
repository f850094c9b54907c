/** The bound of the benchmark `queue`: pulls drops, writes each batch by one call of a script, and acks. */
import { readFileSync } from "node:fs";
import { Redis } from "ioredis";
import { connect, type JsMsg } from "nats";
import type { BareQueueOrder, QueueAnswer } from "./queue-shared.js";

const SCRIPT = readFileSync(new URL("queue-bare.lua", import.meta.url), "utf8");
const BATCH = 256;
/** As many as the service has under way. */
const UNDER_WAY = 2;

process.once("message", (order: BareQueueOrder) => void run(order));

async function run({ port, natsUrl, stream, audiences, prefix, entries, trimTo }: BareQueueOrder): Promise<void> {
  const redis = new Redis(port);
  redis.defineCommand("addDrops", { numberOfKeys: 0, lua: SCRIPT });
  const { addDrops } = redis as unknown as { addDrops(...args: readonly (string | number)[]): Promise<null> };
  const connection = await connect({ servers: natsUrl });
  const consumer = await connection.jetstream().consumers.get(stream, stream);
  const tell = (answer: QueueAnswer): void => void process.send?.(answer);
  const waiting: JsMsg[] = [];
  let [underWay, completed] = [0, 0];
  const work = async (): Promise<void> => {
    if (underWay === UNDER_WAY || waiting.length === 0) return;
    const batch = waiting.splice(0, BATCH);
    underWay++;
    await addDrops.call(redis, prefix, entries, trimTo, ...groupsOf(batch, audiences));
    for (const message of batch) message.ack();
    await connection.flush();
    underWay--;
    completed += batch.length;
    tell({ completed });
    void work();
  };
  const messages = await consumer.consume({ max_messages: 4 * BATCH });
  tell({ completed });
  for await (const message of messages) if (waiting.push(message) === 1) setImmediate(() => void work());
}

/** Homes that get the same drops are one group. */
function groupsOf(batch: readonly JsMsg[], audiences: BareQueueOrder["audiences"]): (string | number)[] {
  const drops = batch.map((message) => message.json<{ drop_id: string; author: number; created_at: number }>());
  const ofUser = new Map<string, number[]>();
  for (const [at, { author }] of drops.entries())
    for (const user of audiences[author] ?? []) {
      const known = ofUser.get(user);
      if (known) known.push(at);
      else ofUser.set(user, [at]);
    }
  const groups = new Map<string, { readonly users: string[]; readonly places: readonly number[] }>();
  for (const [user, places] of ofUser) {
    const key = places.join();
    const group = groups.get(key);
    if (group) group.users.push(user);
    else groups.set(key, { users: [user], places });
  }
  return [...groups.values()].flatMap(({ users, places }) => [
    ...[users.join(), 2 * places.length],
    ...places.flatMap((at) => [drops[at]?.created_at ?? 0, drops[at]?.drop_id ?? ""]),
  ]);
}
