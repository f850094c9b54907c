import { withDeadline } from "../kernel/deadlines.js";
import { codeOf } from "../kernel/errors.js";
import { SECOND } from "../kernel/time.js";
import {
  authorOf,
  type Erased,
  type PulledAuthors,
  type TimelineStore,
  userOfHome,
  withoutErasedOriginals,
  writeUnlessErased,
} from "../state/index.js";
import type { Rebuild } from "./rebuild.js";
import type { OpenSources } from "./sources.grpc.js";

/** Leaves out drops of erased authors, and reposts of their drops: an upstream may delete them late. */
export const sourcesWithoutErased =
  (openSources: OpenSources, erased: Pick<Erased, "among">): OpenSources =>
  (user, options) => {
    const sources = openSources(user, options);
    const known = options?.tolerant ? tolerantly(erased) : erased;
    return {
      async following(reader, deadline) {
        const all = await sources.following(reader, deadline);
        const gone = await known.among(all);
        return gone.size === 0 ? all : all.filter((author) => !gone.has(author));
      },
      drops: (authors, limits, answered) =>
        sources.drops(authors, limits, async (asked, page) =>
          answered(asked, await withoutErasedOriginals(known, page)),
        ),
    };
  };

const NO_USERS: ReadonlySet<string> = new Set();

/** Maximum time that a tolerant read waits until Redis tells which authors are erased. */
const TOLERANT_WAIT_MS = SECOND / 4;

/** After one question without an answer, no other is asked: each would cost the wait again. */
function tolerantly({ among }: Pick<Erased, "among">): Pick<Erased, "among"> {
  let isAway = false;
  return {
    among: async (users) => {
      if (isAway) return NO_USERS;
      return withDeadline(among(users), Date.now() + TOLERANT_WAIT_MS).catch(() => {
        isAway = true;
        return NO_USERS;
      });
    },
  };
}

interface RebuildDeps {
  readonly store: Pick<TimelineStore, "forget">;
  readonly erased: Pick<Erased, "among">;
  readonly authorStates: PulledAuthors;
}

/**
 * Rebuilds timelines, but none of an erased user. If the author of a merged timeline is erased, the page was read with
 * an old copy of the registry: then reads the registry again.
 */
export const rebuildUnlessErased =
  (rebuild: Rebuild, { store, erased, authorStates }: RebuildDeps): Rebuild =>
  async (key, ...rest) => {
    const author = authorOf(key);
    const user = author ?? userOfHome(key);
    if (user === undefined) return rebuild(key, ...rest);
    const write = { write: () => rebuild(key, ...rest), remove: () => store.forget(key) };
    try {
      await writeUnlessErased(erased, user, write);
    } catch (error) {
      if (author === undefined || codeOf(error) !== "notfound") throw error;
      await authorStates.refresh();
    }
  };
