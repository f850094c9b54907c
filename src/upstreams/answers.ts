import { AppError } from "../kernel/errors.js";
import { idFault } from "../kernel/ids.js";

/** Maximum number of items of an answer. An upstream may answer with more items than it was asked for. */
const MAX_ITEMS = 10_000;
const MAX_TOKEN_CHARACTERS = 4_096;

/** Counts items of an answer about `subject`, a user or author, that are left out. */
export type LeaveOut = (method: string, subject: string, count?: number) => void;

export const broken = (method: string, fault: string): AppError =>
  new AppError("failed", `${method}: the answer breaks the contract: ${fault}`);

/** Leaves out invalid ids. A page may be empty after that: the next token alone tells if the list ends. */
export function validUsers(ids: readonly string[], leaveOut: (count: number) => void): readonly string[] {
  const isValid = (id: string): boolean => idFault(id) === undefined;
  if (ids.every(isValid)) return ids;
  const kept = ids.filter(isValid);
  leaveOut(ids.length - kept.length);
  return kept;
}

/** @throws AppError `failed` for a page that is too long, or whose token leads to the same page */
export function checkPage(
  method: string,
  asked: string,
  { length, next }: { readonly length: number; readonly next: string },
): void {
  refuseLong(method, length);
  if (next !== "" && next === asked) throw broken(method, "its token leads to the same page again");
  if (next.length > MAX_TOKEN_CHARACTERS) throw broken(method, "its token is too long");
}

/** Returns undefined if the upstream omits the total, or counts the page alone. */
export function totalOf(
  total: number,
  { length, next }: { readonly length: number; readonly next: string },
): number | undefined {
  return Number.isSafeInteger(total) && total > 0 && total >= length + (next === "" ? 0 : 1) ? total : undefined;
}

/** @throws AppError `failed` */
export function refuseLong(method: string, length: number): void {
  if (length > MAX_ITEMS) throw broken(method, `it has ${length} items, and at most ${MAX_ITEMS} are read`);
}
