import type { TimelineEvent } from "../../contracts/events.js";
import { DAY } from "../../kernel/time.js";
import type { Erased } from "../../state/index.js";
import type { Logged } from "../reconcile/reconcile.js";
import type { Recovery } from "./loss-detector.js";

interface ErasureDeps extends Pick<Erased, "among"> {
  readonly readErasures: () => AsyncIterable<Logged>;
  /** Records that the user is erased, unless the erasure was lifted since. */
  readonly apply: (event: TimelineEvent, admission: { readonly time: number }) => Promise<void>;
  /** Stores the event at the end of the log again. */
  readonly readmit: (event: TimelineEvent) => Promise<unknown>;
}

/** Maximum time of an erasure. */
const MARGIN_MS = DAY;

/**
 * Returns a recovery that first records who is erased, so that events that name these users are dropped. A Redis that
 * lost writes may hold removed keys again: users who were erased lately are forgotten again once all other events are
 * applied.
 */
export const recoveringErasures =
  ({ readErasures, apply, readmit, among }: ErasureDeps, recover: Recovery["recover"]): Recovery["recover"] =>
  async (loss, stopping) => {
    const lately = new Map<string, TimelineEvent>();
    for await (const { event, time } of readErasures()) {
      if (event.name !== "user_erased") continue;
      await apply(event, { time });
      if (time >= loss.since - MARGIN_MS) lately.set(event.payload.user_id, event);
    }
    const recovered = await recover(loss, stopping);
    const erased = await among([...lately.keys()]);
    for (const [user, event] of lately) if (erased.has(user)) await readmit(event);
    return recovered;
  };
