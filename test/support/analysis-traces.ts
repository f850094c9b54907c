import { STREAM } from "../../src/contracts/subjects.js";
import { encodeId } from "../../src/kernel/ids.js";
import { SOURCE_TURN_KEYS } from "../../src/state/keys.js";
import type { SagaBench } from "./analysis.js";

/** Something that is stored: a row, a key or a message. */
interface Trace {
  readonly place: string;
  readonly value: unknown;
}

const TABLES = ["timeline_analyses", "xp_transactions", "xp_totals"];
const STREAMS = [STREAM.timeline, STREAM.timelineEvents, STREAM.gamification, STREAM.analyses, STREAM.dlq];
/** These have no users, and change all the time. */
const UNNAMED = /^timeline:x:(attempts|source-|erased)/;

/** Everything that the saga keeps, but the markers of erased users. */
export async function allTraces({ db, nats, redis }: SagaBench): Promise<Trace[]> {
  const traces: Trace[] = [];
  for (const table of TABLES)
    for (const value of await db.query(`SELECT * FROM public.${table}`)) traces.push({ place: table, value });
  for (const stream of STREAMS) {
    const { state } = await nats.manager.streams.info(stream);
    for (let seq = Math.max(1, state.first_seq); seq <= state.last_seq; seq++) {
      const message = await nats.manager.streams.getMessage(stream, { seq }).catch(() => undefined);
      if (message) traces.push({ place: `${stream} ${message.subject}`, value: message.json() });
    }
  }
  for (const key of await redis.raw.keys("*")) {
    if (UNNAMED.test(key)) continue;
    const value = key.startsWith("analysis:")
      ? JSON.parse((await redis.raw.get(key)) ?? "")
      : await redis.raw.type(key);
    traces.push({ place: `Redis ${key}`, value });
  }
  for (const key of SOURCE_TURN_KEYS)
    for (const member of await redis.raw.zrange(key, "0", "-1")) traces.push({ place: `Redis ${key}`, value: member });
  return traces;
}

/** Those that name a user, and those of the analyses that do. */
export function tracesOf(user: string, traces: readonly Trace[]): Trace[] {
  const token = encodeId(user);
  const namesUser = ({ place, value }: Trace): boolean =>
    place.split(/[ .:{}]/).includes(token) || valuesIn(value).some((text) => text === user || text === token);
  const ids = new Set(traces.filter(namesUser).flatMap(({ value }) => idOf(value)));
  const isOfOne = ({ place }: Trace): boolean => place.startsWith("KV") || place.includes("$KV");
  return traces.filter((one) => namesUser(one) || (isOfOne(one) && one.place.split(".").some((part) => ids.has(part))));
}

const idOf = (value: unknown): string[] => {
  const id = (value as { readonly analysis_id?: unknown } | null)?.analysis_id;
  return typeof id === "string" ? [id] : [];
};

function valuesIn(value: unknown): string[] {
  if (typeof value === "string") return [value];
  return value !== null && typeof value === "object" ? Object.values(value).flatMap(valuesIn) : [];
}

/** Everything but what names the user. Lists of others lack the analyses of the user. */
export function tracesWithout(user: string, traces: readonly Trace[]): Trace[] {
  const gone = new Set(tracesOf(user, traces));
  const ids = new Set([...gone].flatMap(({ value }) => idOf(value)));
  return traces
    .filter((one) => !gone.has(one))
    .map(({ place, value }) =>
      place.endsWith(".ids") ? { place, value: (value as string[]).filter((id) => !ids.has(id)) } : { place, value },
    );
}

export const sortedTraces = (traces: readonly Trace[]): string[] =>
  traces.map(({ place, value }) => `${place} ${JSON.stringify(value)}`).sort();
