import { type Fences, writeUnlessDeleted } from "../contracts/fences.js";
import type { FanoutJob } from "../contracts/jobs.js";
import type { Notification } from "../contracts/notifications.js";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { failpoint } from "../kernel/failpoints.js";
import { type Audience, audienceOf } from "./audience.js";
import type { Notify, TimelineWriter } from "./ports.js";

interface ApplyDeps {
  readonly writer: TimelineWriter;
  readonly fences: Fences;
  readonly notify: Notify;
}

/** What is applied, without the users: they are given apart, packed. */
export type Change = Omit<FanoutJob, "user_ids">;

/** How one change meets one audience. */
export interface Apply {
  /**
   * A publication is written first, then looks at what wins over it (a deletion,
   * an unfollow meanwhile), then notifies. A deletion, whose tombstone stands,
   * notifies those who have the drop, and then removes it. Doing it again changes
   * nothing more.
   */
  to(change: Change, audience: Audience): Promise<void>;
  /** Takes a publication out again of the homes of those who have left its author, unless they are back by now. */
  takeOut(change: Change, left: readonly string[]): Promise<void>;
}

/** Makes what applies changes. */
export function createApply({ writer, fences, notify }: ApplyDeps): Apply {
  return {
    async to(change, audience) {
      if (change.action === "add") return add(change, audience);
      // Who has it is told before it goes: handled again, what is still there is told again, under the same message id.
      await tell(change, audience.ids, (users) => writer.holdersAmong(users, change.drop_id));
      await writer.removeHome(audience, [change.drop_id]);
    },
    takeOut,
  };

  async function add(change: Change, audience: Audience): Promise<void> {
    if (change.created_at < fences.retentionStart()) return;
    const drops = [change.drop_id];
    let generation: string | undefined;
    const deleted = await writeUnlessDeleted(drops, {
      write: async () => {
        await failpoint("write", change.drop_id);
        await writer.addHome(audience, [{ drop: change.drop_id, score: change.created_at }]);
        await failpoint("written", change.drop_id);
      },
      tombstonedAmong: async () => {
        const looked = await Promise.all([fences.tombstonedAmong(drops), fences.generation(change.user_id)]);
        generation = looked[1];
        await failpoint("checked", change.drop_id);
        return looked[0];
      },
      remove: () => writer.removeHome(audience, drops),
    });
    if (deleted !== undefined && deleted.size > 0) return;
    // The followers may have been those of yesterday.
    const left = generation === change.generation ? [] : await fences.unfollowedAmong(change.user_id, audience.ids);
    const gone = new Set(left);
    await takeOut(change, left);
    await tell(change, gone.size === 0 ? audience.ids : audience.ids.filter((id) => !gone.has(id)));
    await failpoint("notified", change.drop_id);
  }

  async function takeOut(change: Change, left: readonly string[]): Promise<void> {
    if (left.length === 0) return;
    await writer.removeHome(audienceOf(left), [change.drop_id]);
    const away = new Set(await fences.unfollowedAmong(change.user_id, left));
    const back = left.filter((user) => !away.has(user));
    if (back.length > 0) await add(change, audienceOf(back));
  }

  function tell(change: Change, users: readonly string[], among?: Parameters<Notify>[2]): Promise<void> {
    if (users.length === 0 || change.silent || Date.now() - change.admitted_at > NOTIFY_WINDOW_MS)
      return Promise.resolve();
    return notify(users, notificationOf(change), among);
  }
}

function notificationOf(change: Change): Notification {
  return change.action === "add"
    ? { event: "new_drop", drop_id: change.drop_id, created_at: change.created_at }
    : { event: "drop_deleted", drop_id: change.drop_id };
}
