import type { Redis } from "ioredis";
import { eventually } from "./eventually.js";

/** Waits until fan-out has recorded in Redis how far it is; from then on a loss is noticed. */
export async function progressRecorded({ redis }: { readonly redis: Redis }): Promise<void> {
  const before = Date.now();
  const from = async () => Number(await redis.hget("timeline:x:continuity:{0}", "from"));
  await eventually(async () => (await from()) > before, "the record is newer than what was applied");
}
