import slotOf from "cluster-key-slot";
import { Cluster, type Redis } from "ioredis";
import { AppError } from "../../kernel/errors.js";
import { startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";
import { refusalOf } from "../refusals.js";
import type { RedisClient } from "./connect.js";
import type { Scripts } from "./scripts.js";
import { mastersOf } from "./servers.js";

const SAMPLE_MS = 15 * SECOND;

export interface RedisClock {
  /** ms since the epoch, at the server that holds the key; a new server is asked first. */
  now(key: string): Promise<number>;
  sample(): Promise<void>;
  close(): void;
}

/** Seconds, and microseconds on top. */
type AskTime = (server: Redis) => Promise<readonly (string | number)[]>;

/** Steps of this machine's clock do not count. Asks every 15 s, and after a connection closed: another machine may answer then. (Cristian's algorithm) */
export function followClock(scripts: Scripts, ask: AskTime = (server) => server.time()): RedisClock {
  const { client } = scripts;
  const offsets = new WeakMap<Redis, Promise<number>>();
  const measure = (server: Redis): Promise<number> =>
    scripts.command("time", async () => {
      const sent = performance.now();
      const [seconds, micros] = await ask(server);
      return Number(seconds) * 1_000 + Number(micros) / 1_000 - (sent + performance.now()) / 2;
    });
  const learn = (server: Redis): Promise<number> => {
    const asked = measure(server);
    const forget = (): void => void offsets.delete(server);
    offsets.set(server, asked);
    asked.then(() => server.once("close", forget), forget);
    return asked;
  };
  const refresh = async (server: Redis): Promise<unknown> =>
    offsets.has(server) ? offsets.set(server, Promise.resolve(await measure(server))) : learn(server);
  const sample = async (): Promise<void> => {
    const masters = mastersOf(client);
    if (masters.length === 0) throw noMaster(client, "yet");
    await Promise.all(masters.map(refresh));
  };
  const loop = startLoop({ everyMs: SAMPLE_MS, firstAfterMs: SAMPLE_MS, work: sample });
  return {
    async now(key) {
      const server = masterOf(client, key);
      return Math.floor(performance.now() + (await (offsets.get(server) ?? learn(server))));
    },
    sample,
    close: () => void loop.close(),
  };
}

/** A cluster that refuses this process names none of its masters. */
const noMaster = (client: RedisClient, what: string): AppError =>
  refusalOf(client) ?? new AppError("unavailable", `Redis: no master of the cluster is known ${what}`);

function masterOf(client: RedisClient, key: string): Redis {
  if (!(client instanceof Cluster)) return client;
  const [name] = client.slots[slotOf(key)] ?? [];
  const master = client.nodes("all").find(({ options }) => `${options.host}:${options.port}` === name);
  if (!master) throw noMaster(client, "for the key");
  return master;
}
