import { isTime, isTooFarAhead } from "../../contracts/times.js";
import { MAX_RECIPIENTS } from "../../contracts/untrusted.js";
import type { Drop } from "../../gen/avion/posts.js";
import { AppError } from "../../kernel/errors.js";
import { FLOOR_MEMBER, idFault } from "../../kernel/ids.js";
import { counter } from "../../kernel/meters.js";
import { sharedNow } from "../../kernel/time.js";

/** An upstream may answer with more than it was asked for, but not with more than this. */
const MAX_ITEMS = 10_000;
const MAX_TOKEN_CHARACTERS = 4_096;

const leftOut = counter(
  "timeline_upstream_left_out",
  "Users and drops left out of an upstream's answer because they break the contract",
);

/** Counts the invalid items left out. @throws AppError `failed` for an answer that is too long or wholly invalid */
function valid<Item>(method: string, items: readonly Item[], isValid: (item: Item) => boolean): readonly Item[] {
  refuseLong(method, items.length);
  if (items.every(isValid)) return items;
  const kept = items.filter(isValid);
  leftOut.add(items.length - kept.length, { method });
  // An empty page would end the list.
  if (kept.length === 0) throw broken(method, "every item is invalid");
  return kept;
}

const broken = (method: string, fault: string): AppError =>
  new AppError("failed", `${method}: the answer breaks the contract: ${fault}`);

/** @throws AppError `failed` */
export const validUsers = (method: string, ids: readonly string[]): readonly string[] =>
  valid(method, ids, (id) => idFault(id) === undefined);

/**
 * Keeps drops from too far ahead, since the next page may begin below one of them: readers leave them out. `below`: the
 * drop that was asked below; "": none.
 * @throws AppError `failed`
 */
export function validDrops(method: string, drops: readonly Drop[], below: string): readonly Drop[] {
  const kept = valid(method, drops, isDrop);
  if (below !== "" && kept.at(-1)?.drop_id === below) throw broken(method, "the page below a drop leads to itself");
  const now = sharedNow();
  let ahead = 0;
  for (const { created_at } of kept) if (isTooFarAhead(created_at, now)) ahead++;
  if (ahead > 0) leftOut.add(ahead, { method });
  return kept;
}

function isDrop({ drop_id, created_at, recipients }: Drop): boolean {
  return (
    idFault(drop_id) === undefined &&
    drop_id !== FLOOR_MEMBER &&
    isTime(created_at) &&
    recipients.length <= MAX_RECIPIENTS
  );
}

/** @throws AppError `failed` for a page that is too long, or after which the list would never end */
export function checkPage(
  method: string,
  asked: string,
  { length, next }: { readonly length: number; readonly next: string },
): void {
  refuseLong(method, length);
  if (next !== "" && next === asked) throw broken(method, "its token leads to the same page again");
  if (next.length > MAX_TOKEN_CHARACTERS) throw broken(method, "its token is too long");
}

/** Undefined where an upstream leaves the total out, or counts the page alone. */
export function totalOf(
  total: number,
  { length, next }: { readonly length: number; readonly next: string },
): number | undefined {
  return total > 0 && total >= length + (next === "" ? 0 : 1) ? total : undefined;
}

function refuseLong(method: string, length: number): void {
  if (length > MAX_ITEMS) throw broken(method, `it has ${length} items, and at most ${MAX_ITEMS} are read`);
}
