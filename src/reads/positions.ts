import { parseUser } from "../contracts/page-request.js";
import { listOfPosition, positionDropFault, positionTimelineFault } from "../contracts/positions.js";
import { refusingSuspended } from "../contracts/standings.js";
import { MAX_LIMIT } from "../contracts/timeline-pages.js";
import {
  type GetPositionsRequest,
  GetPositionsResponse,
  GetTimelineResponse,
  type SetPositionRequest,
  SetPositionResponse,
} from "../gen/avion/timeline.js";
import { AppError, codeOf, invalid, oneLine } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { SECOND } from "../kernel/time.js";
import {
  type Erased,
  erasedUser,
  type ListReaders,
  type Standings,
  type State,
  writeUnlessErased,
} from "../state/index.js";
import type { GetTimeline } from "./get-timeline.js";
import type { PositionStore } from "./positions.nats.js";

/** Share of a position in what a user may read: ten a second, a hundred at once. */
const COST = 10;

interface PositionDeps {
  readonly positions: PositionStore;
  readonly erased: Pick<Erased, "among">;
  readonly standings: Pick<Standings, "of">;
  readonly readers: Pick<ListReaders, "readOrLast">;
  readonly takeRead: State["limits"]["takeRead"];
  readonly notifyUser: State["streams"]["notifyUser"];
}

interface Call {
  /** ms since the epoch */
  readonly deadline: number;
}

/** Answers are encoded. */
export function createPositionMethods(deps: PositionDeps) {
  const { positions, erased, standings, takeRead, notifyUser } = deps;
  const methods = {
    getPositions: async (request: GetPositionsRequest): Promise<Buffer> => {
      const user = parseUser(request.user_id);
      const isErased = (await erased.among([user])).has(user);
      const all = isErased ? [] : await positions.all(user);
      all.sort((a, b) => (a.timeline < b.timeline ? -1 : 1));
      return Buffer.from(GetPositionsResponse.encode({ positions: all }).finish());
    },
    setPosition: async (request: SetPositionRequest, { deadline }: Call): Promise<Buffer> => {
      const user = parseUser(request.user_id);
      const { timeline, drop_id, version } = request;
      refuse("timeline", positionTimelineFault(timeline));
      refuse("drop_id", positionDropFault(drop_id));
      refuse("version", version < 0 ? "must not be negative" : undefined);
      const seconds = await takeRead(user, COST);
      if (seconds > 0)
        throw new AppError("exhausted", "too many positions are set", { retryAfterMs: seconds * SECOND });
      await refuseOthersList(deps, { user, timeline, deadline });
      const position = await writeUnlessErased(erased, user, {
        write: () => positions.set(user, { timeline, drop_id, version }),
        remove: () => positions.remove(user),
      }).catch((error: unknown) => {
        throw codeOf(error) === "notfound" ? erasedUser() : error;
      });
      // A repeated call publishes again: the first one may have failed here.
      const id = `new_position:${encodeId(user)}:${encodeId(timeline)}:${version}`;
      await notifyUser(user, { event: "new_position", timeline, drop_id, version }, id);
      return Buffer.from(SetPositionResponse.encode({ position }).finish());
    },
  };
  return refusingSuspended(methods, ["setPosition"], standings.of);
}

interface Asked extends Call {
  readonly user: string;
  readonly timeline: string;
}

/** While the users service is unavailable, the last answer about a list counts, as for its pages. */
async function refuseOthersList({ erased, readers }: PositionDeps, { user, timeline, deadline }: Asked) {
  const list = listOfPosition(timeline);
  if (list === undefined) return;
  if ((await erased.among([user])).has(user)) throw erasedUser();
  await readers.readOrLast({ owner: user, list }, deadline).catch((error: unknown) => {
    const code = codeOf(error);
    if (code === "notfound") throw new AppError(code, "the user has no such list");
    throw code === "invalid" ? invalid("timeline", "names no list") : error;
  });
}

function refuse(field: string, fault: string | undefined): void {
  if (fault !== undefined) throw invalid(field, fault);
}

interface NewerDeps {
  readonly positions: Pick<PositionStore, "of">;
  readonly log: Logger;
}

export interface AskedNewer {
  readonly user_id: string;
  readonly with_newer?: boolean | undefined;
}

/** A part of the answer: degraded if the entries could not be read, or not all of them. */
interface Newer {
  readonly newer?: number;
  readonly degraded?: true;
}

/** Adds to pages how many entries are newer than the user's position. If that cannot be read, the page is degraded. */
export function withNewer<Asked extends AskedNewer>(
  { positions, log }: NewerDeps,
  timelineOf: (request: Asked) => string,
  get: GetTimeline<Asked>,
): GetTimeline<Asked> {
  const newerThan = async (drop: string, ...[request, context]: Parameters<GetTimeline<Asked>>): Promise<Newer> => {
    const page = { ...request, limit: MAX_LIMIT, max_id: "", min_id: "" };
    const read = async (since_id: string): Promise<Newer> => {
      const { drop_ids, degraded } = GetTimelineResponse.decode(await get({ ...page, since_id }, context));
      return degraded ? { newer: drop_ids.length, degraded } : { newer: drop_ids.length };
    };
    // The timeline has lost the drop, and its id has no date.
    const all = (error: unknown): Promise<Newer> => {
      if (codeOf(error) === "invalid") return read("");
      throw error;
    };
    return read(drop).catch(all);
  };
  return async (request, context) => {
    if (!request.with_newer) return get(request, context);
    const user = parseUser(request.user_id);
    const timeline = timelineOf(request);
    const counted = positions
      .of(user, timeline)
      .then((drop): Newer | Promise<Newer> => (drop === undefined ? { newer: 0 } : newerThan(drop, request, context)))
      .catch((error: unknown): Newer => {
        log.warn({ error: oneLine(error) }, "newer entries could not be counted; the page has no count");
        return { degraded: true };
      });
    const [page, added] = await Promise.all([get(request, context), counted]);
    // Fields of two encoded messages that follow each other are those of one.
    return Buffer.concat([page, GetTimelineResponse.encode(GetTimelineResponse.fromPartial(added)).finish()]);
  };
}
