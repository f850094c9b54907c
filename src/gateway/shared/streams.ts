import type { SharedTimeline } from "../../contracts/stream-events.js";
import { AppError } from "../../kernel/errors.js";
import type { Principal } from "../auth.js";
import { SharedLog } from "./log.js";
import { SharedSession, type SharedSessionDeps, SharedTexts } from "./session.js";
import type { SharedSource, SourceDeps } from "./source.nats.js";

interface SharedStreamsDeps extends Pick<SharedSessionDeps, "standings" | "sentEvents" | "log"> {
  readonly openSource: (deps: Omit<SourceDeps, "nats">) => SharedSource;
  /** Undefined if no users service is configured: nobody knows whom viewers hide, and there are no streams. */
  readonly readHidden: SharedSessionDeps["readHidden"] | undefined;
}

export type SharedStreams = ReturnType<typeof createSharedStreams>;

/** Streams of local and global: one subscription and one log, whatever their number is. */
export function createSharedStreams({ openSource, readHidden, ...deps }: SharedStreamsDeps) {
  if (readHidden === undefined) return { refuseUnserved: unserved, open: unserved, close: async () => undefined };
  const shared = new SharedLog();
  const texts = new SharedTexts({ shared, standings: deps.standings });
  const sessions = new Set<SharedSession>();
  const byUser = new Map<string, Set<SharedSession>>();
  let isScheduled = false;
  const pumpAll = (): void => {
    isScheduled = false;
    for (const session of sessions) session.pump();
  };
  const source = openSource({
    shared,
    log: deps.log,
    changed: () => {
      if (!isScheduled) setImmediate(pumpAll);
      isScheduled = true;
    },
    relationsChanged: (user) => {
      for (const session of user === undefined ? sessions : (byUser.get(user) ?? [])) session.relationsChanged();
    },
  });
  const remove = (session: SharedSession): void => {
    sessions.delete(session);
    const others = byUser.get(session.user);
    others?.delete(session);
    if (others?.size === 0) byUser.delete(session.user);
  };
  return {
    /** @throws AppError `notfound` if there are no such streams here */
    refuseUnserved: (): void => undefined,
    /** The session is followed until its end. */
    open: (principal: Principal, timeline: SharedTimeline): SharedSession => {
      const all = { ...deps, shared, source, texts, readHidden, ended: remove };
      const session = new SharedSession(principal, timeline, all);
      sessions.add(session);
      const others = byUser.get(session.user) ?? new Set();
      byUser.set(session.user, others.add(session));
      return session;
    },
    close: () => source.close(),
  };
}

function unserved(): never {
  throw new AppError(
    "notfound",
    "this gateway serves no streams of local and global: TIMELINE_USER_SERVICE_ADDR is not set",
  );
}
