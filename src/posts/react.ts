import { AppError } from "../kernel/errors.js";
import { findDrop, type PostsChange, type PostsDeps } from "./deps.js";
import { engagementChanged } from "./events.js";
import type { ReactionKind } from "./ports.js";
import { readDropId, readId } from "./request.js";

/** What one of the four methods does. */
interface Reaction {
  readonly kind: Exclude<ReactionKind, "reply">;
  readonly active: boolean;
  readonly change: PostsChange;
}

/** The four methods by what they do. */
export const REACTIONS = {
  like: { kind: "like", active: true, change: "liked" },
  unlike: { kind: "like", active: false, change: "unliked" },
  share: { kind: "share", active: true, change: "shared" },
  unshare: { kind: "share", active: false, change: "unshared" },
} as const satisfies Record<string, Reaction>;

/** Likes or shares a drop, or takes that back; where it is so already nothing changes. */
export const react =
  (deps: PostsDeps, { kind, active, change }: Reaction) =>
  async (request: { readonly drop_id: string; readonly user_id: string }): Promise<{ changed: boolean }> => {
    const dropId = readDropId("drop_id", request.drop_id);
    const reaction = { dropId, kind, actorId: readId("user_id", request.user_id) };
    const { found, changed } = await deps.store.reactions.react(reaction, active, engagementChanged(reaction));
    if (!found) return refused(deps, dropId, active);
    if (changed) {
      deps.wakeRelay();
      deps.observe.changed(change);
    }
    return { changed };
  };

/** What was taken back is gone with a deleted drop; nothing can be added to one. */
async function refused(deps: PostsDeps, dropId: string, active: boolean): Promise<{ changed: false }> {
  await findDrop(deps, dropId);
  if (active) throw new AppError("conflict", "drop_id: the drop is deleted");
  return { changed: false };
}
