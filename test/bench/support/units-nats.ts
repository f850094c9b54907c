import { createDropIds } from "../../../src/posts/drops/ids.js";
import { RECENT_KEY } from "../../../src/state/keys.js";
import { World } from "../../support/world.js";
import type { Bench } from "./bench.js";
import { postDrops } from "./drops.js";
import { fillHomes } from "./homes.js";
import { check, type Row } from "./result.js";

const AUTHORS = 20;
const POSTS = 400;
const FOLLOWERS = 100;
const ENTRIES = 50;
/** One user of so many has listened lately. */
const LISTENER_EVERY = 10;

/** Mean sizes of the messages that a drop for 100 followers leaves. */
export async function bytesInNats(bench: Bench, posts = POSTS): Promise<Row[]> {
  const world = new World();
  const users = Array.from({ length: AUTHORS * FOLLOWERS }, (_, n) => `home-${n}`);
  for (const [n, user] of users.entries()) world.follow(user, `author-${n % AUTHORS}`);
  const servers = await bench.servers(world);
  const { redis, streams } = servers;
  await fillHomes(redis, users, { entries: ENTRIES });
  const listeners = users.filter((_, n) => n % LISTENER_EVERY === 0);
  await redis.zadd(RECENT_KEY, ...listeners.flatMap((user) => [Date.now(), user]));
  const worker = await bench.service(servers, { roles: "fanout" });
  const idOf = createDropIds();
  const drops = Array.from({ length: posts }, (_, n) => [idOf(Date.now()), `author-${n % AUTHORS}`] as const);
  await postDrops(streams, drops);
  await worker.stop();
  const bytesOf = async (stream: string): Promise<number> => {
    const { bytes, messages } = (await streams.manager.streams.info(stream)).state;
    check(messages > 0, `${stream} holds messages`);
    return bytes / messages;
  };
  return [
    { name: "NATS: a drop in DROPS", value: await bytesOf("DROPS"), unit: "B" },
    { name: "NATS: a notification in NOTIFY", value: await bytesOf("NOTIFY"), unit: "B" },
    { name: "NATS: a completion in COMPLETIONS", value: await bytesOf("COMPLETIONS"), unit: "B" },
  ];
}
