import { badRequest } from "./problem.js";

const MAX_CHARACTERS = 255;
/** The header is a String of RFC 8941, section 3.3.3. */
const QUOTED = /^"((?:[ !#-[\]-~]|\\["\\])*)"$/;
/** Many clients leave the quotes out. A comma would be a second field. */
const BARE = /^[!#-+\--~]+$/;

/** Reads the key as in draft-ietf-httpapi-idempotency-key-header-07; undefined without one. @throws Problem 400 */
export function readIdempotencyKey(header: string | undefined): string | undefined {
  if (header === undefined) return undefined;
  const key = QUOTED.exec(header)?.[1]?.replaceAll(/\\(["\\])/g, "$1") ?? (BARE.test(header) ? header : "");
  if (key !== "" && key.length <= MAX_CHARACTERS) return key;
  const detail = `must be a string of 1 to ${MAX_CHARACTERS} ASCII characters in quotes`;
  throw badRequest([{ field: "Idempotency-Key", detail }]);
}
