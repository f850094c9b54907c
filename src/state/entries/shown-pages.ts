import type { Byline, TimelineEntry } from "../../contracts/timelines.js";
import type { HiddenUsers } from "../hidden/hidden.js";
import { encodeWhole } from "./page-response.js";
import { type EncodedPage, type Range, SPARE, type Stored } from "./stored.js";

interface Signed {
  /** Bylines, in the order of the entries. */
  readonly bylines: Promise<readonly (Byline | undefined)[]>;
  /** Pages by the indexes of their hidden drops. */
  readonly pages: Map<string, EncodedPage | undefined>;
}

interface ShownPagesDeps {
  readonly read: (range: Range) => Promise<Stored>;
  readonly bylinesOf: (key: string, drops: readonly string[]) => Promise<ReadonlyMap<string, Byline>>;
}

/** Undefined: the users service must be asked. */
type Viewer = HiddenUsers | undefined;

interface FirstPage {
  readonly key: string;
  readonly page: NonNullable<Range["page"]>;
}

/** Maximum number of pages of an answer; a page takes some KB. */
const MOST_PAGES = 100;

/**
 * Returns a function that reads a first page of local or global without the drops that a viewer does not see. Resolves
 * to undefined if that takes more than one read, or the users service must be asked. Viewers who read the same answer, and see the same drops of it, share
 * the page.
 */
export function createShownPages({ read, bylinesOf }: ShownPagesDeps) {
  const known = new WeakMap<Stored, Signed>();
  const signedOf = (key: string, stored: Stored): Signed => {
    const shared = known.get(stored);
    if (shared) return shared;
    const drops = stored.entries.map(({ drop }) => drop);
    const bylines = bylinesOf(key, drops).then((byOf) => drops.map((drop) => byOf.get(drop)));
    const signed: Signed = { bylines, pages: new Map() };
    known.set(stored, signed);
    // The next read may know the missing bylines.
    const forget = (): void => void known.delete(stored);
    bylines.then((all) => all.includes(undefined) && forget(), forget);
    return signed;
  };
  return async (first: FirstPage, asked: Viewer | Promise<Viewer>): Promise<EncodedPage | undefined> => {
    const { key, page } = first;
    const range = { key, direction: "older", from: undefined, count: page.drops + 1 + SPARE } as const;
    const [stored, viewer] = await Promise.all([read(range), asked]);
    if (!viewer) return undefined;
    const { entries } = stored;
    const { bylines, pages } = signedOf(key, stored);
    const signed = await bylines;
    const hidden = await viewer.among(signed.filter((by) => by !== undefined));
    const shown: TimelineEntry[] = [];
    let name = "";
    for (let index = 0; index < entries.length && shown.length <= page.drops; index++) {
      const by = signed[index];
      if (!by) return undefined;
      if (hidden.hides(by)) name += `${index},`;
      else shown.push(entries[index] as TimelineEntry);
    }
    const mayBeMore = shown.length <= page.drops && entries.length >= range.count;
    if (mayBeMore || (shown.at(-1)?.score ?? 0) < page.since) return undefined;
    if (pages.has(name)) return pages.get(name);
    const encoded = encodeWhole({ ...stored, entries: shown }, { ...range, page })?.page;
    if (pages.size < MOST_PAGES) pages.set(name, encoded);
    return encoded;
  };
}
