import type { Streams } from "./streams.js";
import type { TimelineEvent } from "./timeline-events.js";

/** Returns a check that the log holds all events; it answers with one that is missing. */
export function missingFrom(streams: Streams, events: readonly TimelineEvent[]): () => Promise<true | string> {
  let count = 0;
  let known: ReadonlySet<string> = new Set();
  return async () => {
    const now = await streams.count("DROPS").catch(() => 0);
    if (now !== count) known = new Set((await streams.all("DROPS")).flatMap(({ body }) => eventKeysIn(String(body))));
    count = now;
    const missing = events.find((event) => {
      const { channel, payload } = event;
      const overtaken = channel === "drop_created" && known.has(eventKeyOf({ drop_id: payload.drop_id }));
      return !overtaken && !known.has(eventKeyOf(payload)) && !isSuperseded(events, event);
    });
    return missing === undefined || `${missing.channel} ${JSON.stringify(missing.payload)} is not in the log`;
  };
}

/** Returns no key for a message that is no event. */
function eventKeysIn(body: string): string[] {
  try {
    return [eventKeyOf(JSON.parse(body) as Record<string, unknown>)];
  } catch {
    return [];
  }
}

/** Producers may spell an event in several ways; the key is the same. */
function eventKeyOf(payload: Partial<Record<string, unknown>>): string {
  const { created_at, drop_id, follower_id, following_id, user_id, target_id, version, host, revision } = payload;
  if ("standing" in payload) return JSON.stringify(["standing", user_id, host, version]);
  if (revision !== undefined) return JSON.stringify(["edited", drop_id, revision]);
  if (target_id !== undefined) return JSON.stringify(["relation", user_id, target_id, version]);
  if (drop_id === undefined) return JSON.stringify(["edge", follower_id, following_id, version]);
  return JSON.stringify([created_at === undefined ? "deleted" : "created", drop_id]);
}

/** Returns true where there is a newer version of the same thing: upstreams list the newest only. */
function isSuperseded(events: readonly TimelineEvent[], { payload }: TimelineEvent): boolean {
  const thing = versionedIn(payload);
  if (thing === undefined) return false;
  return events.some(({ payload: other }) => {
    const newer = versionedIn(other);
    return newer !== undefined && newer.key === thing.key && newer.version > thing.version;
  });
}

function versionedIn(
  payload: TimelineEvent["payload"],
): { readonly key: string; readonly version: number } | undefined {
  if (!("version" in payload)) return undefined;
  return { key: eventKeyOf({ ...payload, version: undefined }), version: payload.version };
}
