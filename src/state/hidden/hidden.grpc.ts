import type { Relation } from "../../gen/avion/users.js";
import { idFault } from "../../kernel/ids.js";
import { readPages } from "../../kernel/paging.js";
import { sharedNow } from "../../kernel/time.js";
import { isUnimplemented, refusalOfUser, type Upstreams } from "../../upstreams/upstreams.grpc.js";
import type { Hiding } from "./hidden.js";
import type { ReadHidden } from "./hidden.redis.js";

const HIDDEN_A_PAGE = 1_000;

/** A users service without GetHidden hides nobody. */
export function createReadHidden(upstreams: Pick<Upstreams, "hidden" | "leaveOut">): ReadHidden {
  return async function* (user) {
    const read = (token: string) => upstreams.hidden({ user, token, size: HIDDEN_A_PAGE });
    try {
      for await (const { hidden } of readPages(read)) {
        const targets = new Map<string, Hiding>();
        for (const { target_id, reposts_only, expires_at, blocked } of hidden) {
          if (idFault(target_id) !== undefined) upstreams.leaveOut("GetHidden", user);
          else if (blocked) targets.set(target_id, "all");
          else if (expires_at !== 0 && expires_at <= sharedNow()) continue;
          else if (targets.get(target_id) !== "all") targets.set(target_id, reposts_only ? "reposts" : "all");
        }
        yield targets;
      }
    } catch (error) {
      if (!isUnimplemented(error)) throw refusalOfUser(error);
    }
  };
}

/** Resolves to undefined where the users service has no GetRelations. At most 1,000 targets may be asked for. */
export const createReadHidings =
  (upstreams: Pick<Upstreams, "relations">) =>
  async (user: string, targets: readonly string[]): Promise<(Hiding | undefined)[] | undefined> => {
    try {
      return (await upstreams.relations(user, targets)).map(hidingOf);
    } catch (error) {
      if (isUnimplemented(error)) return undefined;
      throw error;
    }
  };

function hidingOf({ blocking, blocked_by, muting, mute_reposts_only, mute_expires_at }: Relation): Hiding | undefined {
  if (blocking || blocked_by) return "all";
  if (!muting || (mute_expires_at !== 0 && mute_expires_at <= sharedNow())) return undefined;
  return mute_reposts_only ? "reposts" : "all";
}
