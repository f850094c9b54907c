import { LOG_AGE_MS } from "../../contracts/times.js";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { sharedNow } from "../../kernel/time.js";
import type { State } from "../../state/index.js";
import type { Upstreams } from "../../upstreams/upstreams.grpc.js";
import type { EventLog } from "../log.nats.js";
import { observeRecovery } from "../observe.js";
import { type Reconcile, type TimeRange, untilNow } from "../reconcile/reconcile.js";
import { UpstreamView } from "../upstreams.grpc.js";
import { beginFill, startFill } from "./fill.js";

interface Handles {
  readonly state: State;
  readonly upstreams: (caller: "reconcile") => Upstreams;
  readonly log: Logger;
}

/** Returns the functions that have the log filled, at a first start and after a loss. */
export function openFills(
  { state, upstreams, log }: Handles,
  { readLogState, readBacklog }: Pick<EventLog, "readLogState" | "readBacklog">,
) {
  const fills = { store: state.fill, log };
  const { listsDrops } = new UpstreamView(upstreams("reconcile"));
  let isNew: boolean | undefined;
  let isTold = false;
  const hasHistory = async (since: number): Promise<boolean> => {
    try {
      return await listsDrops(since);
    } catch (error) {
      const fields = { upstream: "posts", error: oneLine(error) };
      if (!isTold) log.warn(fields, "fan-out begins once the posts service tells whether there are drops already");
      isTold = true;
      throw error;
    }
  };
  return {
    beginFill: async (range: TimeRange) =>
      beginFill(fills, { why: "lost", created: (await readLogState()).drops, range }),
    beginFirstFill: async ({ replaced }: { readonly replaced: boolean }): Promise<void> => {
      isNew ??= (await readBacklog()).acked === 0;
      const created = (await readLogState()).drops;
      const hasBegun = (await fills.store.read())?.log === created;
      const range = untilNow(sharedNow() - LOG_AGE_MS);
      if ((isNew || replaced) && !hasBegun && (await hasHistory(range.since)))
        await beginFill(fills, { why: "first", created, range });
    },
  };
}

interface FillOptions {
  readonly eventLog: Pick<EventLog, "readLogState" | "readUnapplied">;
  readonly reconcile: Reconcile;
  readonly isLost: () => boolean;
}

/** Takes part in filling the log while a fill is under way. */
export function openFill({ state, log }: Pick<Handles, "state" | "log">, { eventLog, ...options }: FillOptions) {
  const fill = startFill({
    store: state.fill,
    readLog: async () => (await eventLog.readLogState()).drops,
    readUnapplied: eventLog.readUnapplied,
    ...options,
    log,
  });
  observeRecovery.filled(fill.current);
  return fill;
}
