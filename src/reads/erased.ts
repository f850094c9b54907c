import { withDeadline } from "../kernel/deadlines.js";
import { codeOf } from "../kernel/errors.js";
import { SECOND } from "../kernel/time.js";
import type { PulledAuthors } from "../state/big-authors/pulled.js";
import type { TimelineStore } from "../state/entries/store.redis.js";
import { type Erased, withoutErasedOriginals, writeUnlessErased } from "../state/erased/erasures.js";
import { authorOf, userOfHome } from "../state/timelines.js";
import type { Rebuild } from "./rebuild.js";
import type { OpenSources } from "./sources.grpc.js";

/** An upstream may be slow to forget: neither drops of erased authors are read nor reposts of them. */
export const sourcesWithoutErased =
  (openSources: OpenSources, erased: Pick<Erased, "among">): OpenSources =>
  (user, of) => {
    const sources = openSources(user, of);
    const known = of?.tolerant ? tolerantly(erased) : erased;
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

const NOBODY: ReadonlySet<string> = new Set();

/** A caller who takes drops of erased authors waits no longer for Redis to tell of them. */
const TOLERANT_WAIT_MS = SECOND / 4;

/** After a question without an answer no other is asked: each would be waited for. */
function tolerantly({ among }: Pick<Erased, "among">): Pick<Erased, "among"> {
  let isAway = false;
  return {
    among: async (users) => {
      if (isAway) return NOBODY;
      return withDeadline(among(users), Date.now() + TOLERANT_WAIT_MS).catch(() => {
        isAway = true;
        return NOBODY;
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
 * Rebuilds no timeline of an erased user. A page into which one of an erased author should be merged was read with a copy
 * of the registry that still has the author.
 */
export const rebuildUnlessErased =
  (rebuild: Rebuild, { store, erased, authorStates }: RebuildDeps): Rebuild =>
  async (key, ...of) => {
    const author = authorOf(key);
    const user = author ?? userOfHome(key);
    if (user === undefined) return rebuild(key, ...of);
    const write = { write: () => rebuild(key, ...of), remove: () => store.forget(key) };
    try {
      await writeUnlessErased(erased, user, write);
    } catch (error) {
      if (author === undefined || codeOf(error) !== "notfound") throw error;
      await authorStates.refresh();
    }
  };
