import type { TimelineEvent } from "../../contracts/events.js";
import { isListReader } from "../../contracts/lists.js";
import { CLOCK_SKEW_MS, LOG_AGE_MS } from "../../contracts/times.js";
import { compareVersions, type Version } from "../../contracts/versions.js";
import { mapLimited } from "../../kernel/concurrency.js";
import { HOUR } from "../../kernel/time.js";
import { type EdgeChange, edgeName, edgesIn, type Fences } from "../../state/index.js";
import { type EventLog, GRAPH_SUBJECTS } from "../log.nats.js";
import { ADMISSION_LAG_MS, type TimeRange } from "../reconcile/reconcile.js";
import type { UpstreamView } from "../upstreams.grpc.js";

interface LostEdgeDeps {
  readonly eventLog: Pick<EventLog, "readLogged">;
  /** Fences, which may know changes of edges that the log has lost. */
  readonly fences: Pick<Fences, "allEdges">;
  readonly upstreams: Pick<UpstreamView, "listEdges" | "follows">;
}

/** Follow edge of which the log or the fences have a newer version than the upstream. */
export interface LostEdge {
  /** Edge as the upstream returns it; version 0 stands for none. */
  readonly upstream: EdgeChange;
  /** Sequences of messages of the log that hold newer versions. */
  readonly seqs: readonly number[];
}

interface LoggedEdge {
  readonly newest: EdgeChange;
  readonly messages: readonly { readonly seq: number; readonly version: Version }[];
}

const ASKED_AT_ONCE = 8;

/** No upstream lists the members of lists as follows. They are read again for each page. */
const isOfUser = ({ follower }: EdgeChange): boolean => !isListReader(follower);

/** Returns the follow that an event changes; nothing for a member of a list. */
export const followsIn = (event: TimelineEvent): readonly EdgeChange[] => edgesIn(event).filter(isOfUser);

/**
 * Compares the newest version of each edge, of the log before `until` (ms since the epoch) and of the fences, with the
 * upstream.
 */
export async function findLostEdges(deps: LostEdgeDeps, until: number): Promise<readonly LostEdge[]> {
  const range = { since: until - LOG_AGE_MS - HOUR, until };
  const logged = await readLoggedEdges(deps, range);
  const changes = await deps.upstreams.listEdges({
    since: range.since - ADMISSION_LAG_MS - CLOCK_SKEW_MS,
    until: until + CLOCK_SKEW_MS,
  });
  const listed = new Map(changes?.map((change) => [edgeName(change), change]));
  const newer = [...logged].filter(
    ([name, { newest }]) => compareVersions(listed.get(name)?.version ?? -1, newest.version) < 0,
  );
  const lost = await mapLimited(newer, ASKED_AT_ONCE, async ([name, { newest, messages }]) => {
    const { follower, following } = newest;
    const follows = await deps.upstreams.follows(follower, following);
    // An upstream that lists no changes does not show which versions it has lost.
    if (!changes && follows === newest.follows) return [];
    const version = listed.get(name)?.version ?? 0;
    const seqs = messages.flatMap((message) => (compareVersions(message.version, version) > 0 ? message.seq : []));
    return [{ upstream: { follower, following, follows, version }, seqs }];
  });
  return lost.flat();
}

async function readLoggedEdges(
  { eventLog, fences }: LostEdgeDeps,
  range: TimeRange,
): Promise<ReadonlyMap<string, LoggedEdge>> {
  const logged = new Map<string, LoggedEdge>();
  const note = (change: EdgeChange, messages: LoggedEdge["messages"]): void => {
    const before = logged.get(edgeName(change));
    const newest = before && compareVersions(before.newest.version, change.version) > 0 ? before.newest : change;
    logged.set(edgeName(change), { newest, messages: [...(before?.messages ?? []), ...messages] });
  };
  for await (const { event, seq } of eventLog.readLogged(range, GRAPH_SUBJECTS))
    for (const change of followsIn(event)) note(change, [{ seq, version: change.version }]);
  for await (const change of fences.allEdges()) if (isOfUser(change)) note(change, []);
  return logged;
}
