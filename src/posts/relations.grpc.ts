import { chunked } from "../kernel/concurrency.js";
import { AppError, oneLine } from "../kernel/errors.js";
import { type Clock, MINUTE } from "../kernel/time.js";
import { isUnimplemented, type Users } from "../platform/grpc/upstreams.js";
import type { RelationsTo } from "./relations.js";

const MAX_ASKED = 1_000;

/** A UserService that is replaced by one with blocks is asked again after this time. */
const LACKS_METHOD_MS = MINUTE;

export function createRelationsTo(
  users: Pick<Users, "relations"> | undefined,
  now: Clock = () => performance.now(),
): RelationsTo | undefined {
  if (users === undefined) return undefined;
  let lacksMethodUntil = 0;
  return async ({ field, user }, people) => {
    if (now() < lacksMethodUntil) return undefined;
    try {
      const answers = await Promise.all(chunked(people, MAX_ASKED).map((part) => users.relations(user, part)));
      return new Map(answers.flat().map((relation) => [relation.target_id, relation]));
    } catch (error) {
      if (isUnimplemented(error)) {
        lacksMethodUntil = now() + LACKS_METHOD_MS;
        return undefined;
      }
      // NOT_FOUND would claim that the drop does not exist, and an answer could show it to somebody who is blocked.
      const publicMessage = `${field}: the users they block, and who block them, are not known`;
      throw new AppError("unavailable", `${publicMessage}: ${oneLine(error)}`, { cause: error, publicMessage });
    }
  };
}
