import { type FanoutJob, HOME_TIERS, type HomeTier, type Tiers, tierOfChunk } from "../../contracts/fanout.js";
import { DAY } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { fanoutProgressKey } from "../keys.js";
import { script } from "../scripts.redis.js";

const MARK_CHUNK = script("mark-chunk", import.meta.url);

const PROGRESS_TTL_MS = DAY;
const RECIPIENTS = "~recipients";

/** Numbers of users: of the whole fan-out, and if it is tiered of each tier, in the order of the tiers. */
export type Recipients = readonly [all: number, ...tiers: number[]];

export interface FanoutSize {
  readonly recipients: number;
  readonly chunks: number;
  readonly tiers?: Tiers | undefined;
}

/** Progress of fan-outs of many chunks. Both methods resolve to the size of a fan-out once all of it is done. */
export interface Progress {
  planned(fanout: FanoutName, chunks: readonly string[], recipients: Recipients): Promise<FanoutSize | undefined>;
  done(fanout: FanoutName, chunk: string): Promise<FanoutSize | undefined>;
}

type FanoutName = Pick<FanoutJob, "event" | "drop_id">;

export function createProgress({ run }: Scripts): Progress {
  const mark = async (
    { event, drop_id }: FanoutName,
    recipients: string,
    chunks: readonly string[],
  ): Promise<FanoutSize | undefined> => {
    const key = fanoutProgressKey(event, drop_id);
    const done = (await run(MARK_CHUNK, [key], [PROGRESS_TTL_MS, recipients, ...chunks])) as string[];
    return done.length === 0 ? undefined : sizeOf(done);
  };
  return {
    planned: (fanout, chunks, recipients) => mark(fanout, recipients.join(), chunks),
    done: (fanout, chunk) => mark(fanout, "", [chunk]),
  };
}

/**
 * Progress as it is shown. `recipients` is null while the plan is under way, and `open` names a chunk that is not
 * written yet.
 */
interface KnownProgress {
  readonly event: string;
  readonly drop_id: string;
  readonly recipients: number | null;
  readonly chunks: number;
  readonly done: number;
  readonly open: string | null;
}

/**
 * Reads the progress of a fan-out of many chunks. Undefined for one of a single chunk, and a day after the last change.
 */
export const createReadProgress =
  ({ command }: Pick<Scripts, "command">) =>
  async (event: string, drop_id: string): Promise<KnownProgress | undefined> => {
    const key = fanoutProgressKey(event, drop_id);
    const { [RECIPIENTS]: counts, ...fields } = await command("hgetall", (client) => client.hgetall(key));
    const chunks = Object.entries(fields).filter(([name]) => !name.startsWith("~"));
    if (chunks.length === 0) return undefined;
    const open = chunks.filter(([, time]) => time === "0");
    const recipients = counts === undefined ? null : Number.parseInt(counts, 10);
    const done = chunks.length - open.length;
    return { event, drop_id, recipients, chunks: chunks.length, done, open: open[0]?.[0] ?? null };
  };

/** Returns the size of a fan-out. `done` has each chunk with the time it was done, and the numbers of users. */
function sizeOf(done: readonly string[]): FanoutSize {
  const fields = new Map<string, string>();
  for (let index = 0; index < done.length; index += 2) fields.set(done[index] as string, done[index + 1] as string);
  const [recipients = 0, ...counts] = (fields.get(RECIPIENTS) ?? "").split(",").map(Number);
  fields.delete(RECIPIENTS);
  const landed = (tier: HomeTier) =>
    Math.max(0, ...[...fields].map(([chunk, time]) => (tierOfChunk(chunk) === tier ? Number(time) : 0))) || null;
  const tiers = Object.fromEntries(
    HOME_TIERS.map((tier, index) => [tier, { recipients: counts[index] ?? 0, landed_at: landed(tier) }]),
  ) as Tiers;
  return { chunks: fields.size, recipients, ...(counts.length > 0 && { tiers }) };
}
