import type { TimelineEntry } from "../../contracts/timelines.js";
import { currentOf, isPushed, type PulledAuthors } from "../big-authors/pulled.js";
import { authorKey } from "../keys.js";
import { merge } from "./merge.js";
import type { Range, Stored } from "./stored.js";

interface ListReaderDeps {
  readonly read: (range: Range) => Promise<Stored>;
  readonly authorStates: PulledAuthors;
}

/** The timeline of a pulled author has bylines of reposts and replies only, and does not say whom a drop is for. */
const signed = (entry: TimelineEntry, author: string): TimelineEntry => ({
  ...entry,
  by: { author, ...entry.by, forFollowers: "unknown" },
});

/** Reads the timeline of a list, and those of its pulled members. All entries have bylines, unless they are lost. */
export const createReadList =
  ({ read, authorStates }: ListReaderDeps) =>
  async (range: Range, members: Iterable<string>): Promise<Stored> => {
    const list = await read(range);
    // The registry is read after the list, as for a home.
    const registry = await currentOf(authorStates);
    if (registry.size === 0) return list;
    const merged = [...members].flatMap((author) => {
      const state = registry.get(author)?.state;
      return state === undefined ? [] : [{ author, isBeside: isPushed(state) }];
    });
    if (merged.length === 0) return list;
    const parts = await Promise.all(
      merged.map(async ({ author, isBeside }) => {
        const key = authorKey(author);
        const stored = await read({ ...range, key });
        const entries = stored.entries.map((entry) => signed(entry, author));
        return { key, stored: { ...stored, entries, ...(isBeside && { floor: 0 }) } };
      }),
    );
    return merge(range, list, parts);
  };
