import type { AnalysisResults, Measure, MeasureResult } from "../../contracts/analysis.js";
import { type Post, SKIPPED } from "../sources/source.js";
import { clout, flow, kudos, pulse } from "./formulas.js";

/** docs/analysis.md of this version defines every figure. Results of different versions are not comparable. */
const MEASURES_VERSION = "1";

const FORMULAS: Readonly<Record<Measure, (sorted: readonly Post[], now: number) => MeasureResult>> = {
  flow,
  clout,
  kudos,
  pulse,
};

/**
 * Keeps five numbers of each post, so that memory is bounded by the limit of the source and every figure is exact.
 *
 * @param now ms since the epoch
 */
export async function measure(
  posts: AsyncIterable<Post | typeof SKIPPED>,
  { measures, now }: { readonly measures: readonly Measure[]; readonly now: number },
): Promise<AnalysisResults> {
  const read: Post[] = [];
  let skipped = 0;
  for await (const post of posts) {
    if (post === SKIPPED) skipped++;
    else read.push(post);
  }
  // Clients choose the time of their posts: a source is sorted only nearly.
  read.sort((a, b) => a.createdAt - b.createdAt);
  const [oldest, newest] = [read[0], read.at(-1)];
  return {
    version: MEASURES_VERSION,
    posts: read.length,
    ...(skipped > 0 && { skipped }),
    ...(oldest && newest && { from: rfc3339(oldest), to: rfc3339(newest) }),
    ...Object.fromEntries(measures.map((name) => [name, FORMULAS[name](read, now)])),
  };
}

const rfc3339 = ({ createdAt }: Post): string => new Date(createdAt).toISOString();
