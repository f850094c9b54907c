import { fanoutProgressKey } from "../contracts/keys.js";
import { DAY } from "../kernel/time.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { FanoutName, FanoutSize, Progress } from "./ports.js";

const KEEP_MS = DAY;

/** Keeps the books of large fan-outs in Redis. */
export function createProgress({ run }: Scripts): Progress {
  const mark = async (
    { event, drop_id }: FanoutName,
    recipients: string,
    chunks: readonly string[],
  ): Promise<FanoutSize | undefined> => {
    const [done, users] = (await run(
      "mark-chunk",
      [fanoutProgressKey(event, drop_id)],
      [KEEP_MS, recipients, ...chunks],
    )) as number[];
    return done === undefined || users === undefined ? undefined : { chunks: done, recipients: users };
  };
  return {
    planned: (change, chunks, recipients) => mark(change, String(recipients), chunks),
    done: (change, chunk) => mark(change, "", [chunk]),
  };
}
