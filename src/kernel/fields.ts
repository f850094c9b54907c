import { invalid } from "./errors.js";
import { idFault } from "./ids.js";

/** PostgreSQL stores no NUL. */
export const storedIdFault = (id: string): string | undefined =>
  idFault(id) ?? (id.includes("\0") ? "must not contain NUL" : undefined);

export function readId(field: string, id: string): string {
  const fault = storedIdFault(id);
  if (fault !== undefined) throw invalid(field, fault);
  return id;
}

/** Counts Unicode code points. */
export function readText(field: string, text: string, maxCharacters: number): string {
  if (exceeds(text, maxCharacters)) throw invalid(field, `must have at most ${maxCharacters} characters`);
  if (text.includes("\0")) throw invalid(field, "must not contain NUL");
  if (!text.isWellFormed()) throw invalid(field, "is not well-formed Unicode");
  return text;
}

function exceeds(text: string, maxCharacters: number): boolean {
  if (text.length <= maxCharacters) return false;
  let characters = 0;
  for (const _ of text) if (++characters > maxCharacters) return true;
  return false;
}
