import { type GetDropResponse, RemoteKind, type RemoteObject, Visibility } from "../gen/avion/posts.js";
import type { GetTimelineResponse } from "../gen/avion/timeline.js";
import { createBoundedQueue } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { SECOND } from "../kernel/time.js";
import type { ReadShownDrops } from "../upstreams/shown-drops.js";
import { observeGateway } from "./observe.js";

/** Maximum time that a page waits for its drops, the time for pages before it included. */
const DROPS_MS = 5 * SECOND;
/** Pages of a process whose drops are read at a time; those of one user take at most half of the places. */
const AT_ONCE = 16;
const WAITING = 64;

interface ExpandDeps {
  readonly readDrops: ReadShownDrops;
  /** Resolves to true if the user may make one more call. */
  readonly mayCall: (user: string) => Promise<boolean>;
}

/** Adds the drops to a page, as its user sees them. If they cannot be read, the page is without them, and degraded. */
export function createExpand({ readDrops, mayCall }: ExpandDeps) {
  const inTurn = createBoundedQueue({ atOnce: AT_ONCE, waiting: WAITING });
  return async (page: GetTimelineResponse, user: string) => {
    const beforeRetry = async (): Promise<void> => {
      if (!(await mayCall(user))) throw new AppError("exhausted", "too many reads at once");
    };
    const request = { viewer: user, ids: page.drop_ids, deadline: Date.now() + DROPS_MS, beforeRetry };
    // The metrics of calls to the upstreams say why a read failed.
    const shown = await inTurn(() => readDrops(request), user).catch(() => undefined);
    if (shown !== undefined)
      return { ...page, items: page.items.map((item) => ({ ...item, drop: presentShown(shown.get(item.drop_id)) })) };
    observeGateway.pageWithoutDrops();
    return { ...page, degraded: true };
  };
}

/** Presents an answer as JSON of proto3 has it, but for numbers of 64 bits, which are numbers. */
function presentShown(shown: GetDropResponse | undefined) {
  if (shown === undefined) return undefined;
  const { drop, remote, ...rest } = shown;
  return {
    ...rest,
    remote: presentRemote(remote),
    drop: drop && {
      ...named(drop),
      original: drop.original && named(drop.original),
      remote_original: presentRemote(drop.remote_original),
    },
  };
}

type Named<Shown> = Omit<Shown, "visibility"> & { readonly visibility: string };

const named = <Shown extends { readonly visibility: Visibility }>(shown: Shown): Named<Shown> => ({
  ...shown,
  visibility: `VISIBILITY_${Visibility[shown.visibility]}`,
});

const presentRemote = (remote: RemoteObject | undefined) =>
  remote && { ...named(remote), kind: `REMOTE_KIND_${RemoteKind[remote.kind]}` };
