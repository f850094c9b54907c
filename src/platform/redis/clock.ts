import type { Redis } from "ioredis";
import { AppError } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { startLoop } from "../../kernel/loop.js";
import { type Clock, SECOND, shareClock } from "../../kernel/time.js";
import { refusalOf } from "../refusals.js";
import { mastersOf, type RedisClient } from "./clusters.js";
import type { Scripts } from "./scripts.js";

const SAMPLE_MS = 15 * SECOND;
/** The shortest round trip tells the time best. */
const ASKED_A_SAMPLE = 3;

export type RedisClock = ReturnType<typeof followClock>;

/** The answer is seconds, and microseconds on top. */
type AskTime = (server: Redis) => Promise<readonly (string | number)[]>;

interface Measured {
  readonly offset: number;
  readonly tripMs: number;
}

interface FollowOptions {
  readonly ask?: AskTime;
  /** Callback: called with the clock of a single server, or the median of a cluster's masters, after each sample. */
  readonly sampled?: (now: Clock) => void;
}

/** Steps of this machine's clock do not count. Asks every 15 s, and after a connection closed: another machine may answer then. (Cristian's algorithm) */
export function followClock(
  scripts: Scripts,
  { ask = (server) => server.time(), sampled = () => undefined }: FollowOptions = {},
) {
  const { client, nodeOf, serverAt } = scripts;
  const offsets = new WeakMap<Redis, Promise<number>>();
  const measure = (server: Redis): Promise<Measured> =>
    scripts.command("time", async () => {
      const sent = performance.now();
      const [seconds, micros] = await ask(server);
      const came = performance.now();
      return { offset: Number(seconds) * 1_000 + Number(micros) / 1_000 - (sent + came) / 2, tripMs: came - sent };
    });
  const measureWell = async (server: Redis): Promise<Measured> => {
    const readings = [await measure(server)];
    while (readings.length < ASKED_A_SAMPLE) readings.push(await measure(server));
    return readings.reduce((best, reading) => (reading.tripMs < best.tripMs ? reading : best));
  };
  const learn = (server: Redis, how = measure): Promise<number> => {
    const asked = how(server).then(({ offset }) => offset);
    const forget = (): void => void offsets.delete(server);
    offsets.set(server, asked);
    asked.then(() => server.once("close", forget), forget);
    return asked;
  };
  const refresh = async (server: Redis): Promise<number> => {
    if (!offsets.has(server)) return learn(server, measureWell);
    const { offset } = await measureWell(server);
    offsets.set(server, Promise.resolve(offset));
    return offset;
  };
  const sample = async (): Promise<void> => {
    const masters = mastersOf(client);
    if (masters.length === 0) throw noMaster(client, "yet");
    const offsets = (await Promise.all(masters.map(refresh))).sort((a, b) => a - b);
    const median = offsets[Math.floor(offsets.length / 2)] as number;
    sampled(() => Math.floor(performance.now() + median));
  };
  const loop = startLoop({ everyMs: SAMPLE_MS, firstAfterMs: SAMPLE_MS, work: sample });
  return {
    /** Returns ms since the epoch at the server that holds the key; a new server is asked first. */
    async now(key: string): Promise<number> {
      const server = serverAt(nodeOf(key));
      if (!server) throw noMaster(client, "for the key");
      return Math.floor(performance.now() + (await (offsets.get(server) ?? learn(server))));
    },
    sample,
    close: () => void loop.close(),
  };
}

/** A cluster that refuses this process names none of its masters. */
const noMaster = (client: RedisClient, what: string): AppError =>
  refusalOf(client) ?? new AppError("unavailable", `Redis: no master of the cluster is known ${what}`);

/** Clients, certificates and traces go by the clock of the process, and those who read its log. */
const MOST_OFF_MS = 5 * SECOND;

/** Says why the clock of a process is too far from that of Redis; undefined if it is not. */
export function clockFault(redisNow: number, now: number): string | undefined {
  const off = now - redisNow;
  if (Math.abs(off) <= MOST_OFF_MS) return undefined;
  return `the clock of this process is ${Math.round(Math.abs(off) / SECOND)} s ${off > 0 ? "ahead of" : "behind"} that of Redis`;
}

/** Makes the clock of Redis the one that this process shares with others, and compares its own with it at each sample. */
export function createSharedClock(log: Logger) {
  let fault: string | undefined;
  return {
    sampled: (redis: Clock): void => {
      shareClock(redis);
      const before = fault;
      fault = clockFault(redis(), Date.now());
      if (fault !== undefined && before === undefined)
        log.error({}, `${fault}; this process is not ready until they agree`);
      if (fault === undefined && before !== undefined)
        log.info({}, "the clock of this process agrees with that of Redis again");
    },
    fault: (): string | undefined => fault,
  };
}
