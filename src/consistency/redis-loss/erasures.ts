import type { TimelineEvent } from "../../contracts/events.js";
import { DAY } from "../../kernel/time.js";
import type { Logged } from "../reconcile/reconcile.js";
import type { Recovery } from "./loss-detector.js";

interface ErasureDeps {
  readonly readErasures: () => AsyncIterable<Logged>;
  /** Records that the user is erased. */
  readonly apply: (event: TimelineEvent, of: { readonly time: number }) => Promise<void>;
  /** Stores the event at the end of the log again. */
  readonly readmit: (event: TimelineEvent) => Promise<unknown>;
}

/** An erasure takes less time. */
const MARGIN_MS = DAY;

/**
 * Makes a recovery that records first who is erased: what names these users changes nothing. A Redis that lost writes may
 * hold again what was removed: users who were erased lately are forgotten again once everything else is applied.
 */
export const recoveringErasures =
  ({ readErasures, apply, readmit }: ErasureDeps, recover: Recovery["recover"]): Recovery["recover"] =>
  async (loss, stopping) => {
    const lately = new Map<string, TimelineEvent>();
    for await (const { event, time } of readErasures()) {
      if (event.name !== "user_erased") continue;
      await apply(event, { time });
      if (time >= loss.since - MARGIN_MS) lately.set(event.payload.user_id, event);
    }
    const recovered = await recover(loss, stopping);
    for (const event of lately.values()) await readmit(event);
    return recovered;
  };
