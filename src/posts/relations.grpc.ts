import { chunked } from "../kernel/concurrency.js";
import { AppError, oneLine } from "../kernel/errors.js";
import { readPages } from "../kernel/paging.js";
import { type Clock, MINUTE } from "../kernel/time.js";
import { isInvalidArgument, isNotFound, isUnimplemented, type Users } from "../upstreams/upstreams.grpc.js";
import type { FollowersOf, ProfileOf } from "./drops/local-users.js";
import type { FollowedAmong, RelationsTo } from "./drops/relations.js";
import type { EraseUser } from "./remote/deleted-actors.js";
import type { SetApproval } from "./remote/deps.js";

/** The limit holds for the ids of a request, and for those of a page. */
const MAX_ASKED = 1_000;

/** A UserService that lacks a method may be replaced by one that has it: it is asked again after this time. */
const LACKS_METHOD_MS = MINUTE;

const sinceStart: Clock = () => performance.now();

/** Calls a method of the UserService; resolves to `otherwise` if the service lacks it. */
function unlessLacking(now: Clock) {
  let until = Number.NEGATIVE_INFINITY;
  return async <Answer, Other>(
    call: () => Promise<Answer>,
    otherwise: () => Promise<Other>,
  ): Promise<Answer | Other> => {
    if (now() < until) return otherwise();
    try {
      return await call();
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
      until = now() + LACKS_METHOD_MS;
      return otherwise();
    }
  };
}

const notKnown = (publicMessage: string, cause: unknown): AppError =>
  new AppError("unavailable", `${publicMessage}: ${oneLine(cause)}`, { cause, publicMessage });

export function createRelationsTo(
  users: Pick<Users, "relations"> | undefined,
  now = sinceStart,
): RelationsTo | undefined {
  if (users === undefined) return undefined;
  const ask = unlessLacking(now);
  return async ({ field, user }, people) => {
    try {
      const asked = () => Promise.all(chunked(people, MAX_ASKED).map((part) => users.relations(user, part)));
      const answers = await ask(asked, async () => undefined);
      return answers && new Map(answers.flat().map((relation) => [relation.target_id, relation]));
    } catch (error) {
      // NOT_FOUND would claim that the drop does not exist, and an answer could show it to somebody who is blocked.
      throw notKnown(`${field}: the users they block, and who block them, are not known`, error);
    }
  };
}

/**
 * Errors name a field of the request. Nobody has a profile if there is no UserService, or one without profiles, or
 * one that refuses the id.
 */
export function createProfileOf(users: Pick<Users, "profile"> | undefined): ProfileOf {
  return async (field, userId) => {
    try {
      return (await users?.profile(userId))?.profile;
    } catch (error) {
      if (isNotFound(error) || isUnimplemented(error) || isInvalidArgument(error)) return undefined;
      throw notKnown(`${field}: the profile of the user is not known`, error);
    }
  };
}

export function createFollowersOf(users: Pick<Users, "followers"> | undefined): FollowersOf | undefined {
  if (users === undefined) return undefined;
  return async (user, size, token) => {
    try {
      return await users.followers({ user, size, token });
    } catch (error) {
      throw notKnown("uri: the followers of the user are not known", error);
    }
  };
}

export function createEraseUser(users: Pick<Users, "erase" | "followers" | "following"> | undefined): EraseUser {
  return async (userId, onlyIfKnown) => {
    try {
      if (users !== undefined) await users.erase(userId, onlyIfKnown);
      return users !== undefined;
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
      return onlyIfKnown && users !== undefined && !(await isInLists(users, userId));
    }
  };
}

/** A service without approvals makes each follow at once. */
export function createSetApproval(users: Pick<Users, "setApproval"> | undefined, now = sinceStart): SetApproval {
  const ask = unlessLacking(now);
  return async (userId, approves) => {
    const set = async () => users?.setApproval(userId, approves);
    await ask(set, async () => undefined).catch((error: unknown) => {
      throw notKnown("uri: whether the actor approves followers cannot be stored", error);
    });
  };
}

/** A service that cannot erase users lists whom the user follows, and by whom the user is followed. */
async function isInLists(users: Pick<Users, "followers" | "following">, user: string): Promise<boolean> {
  const page = { user, size: 1, token: "" };
  const lists = await Promise.all(
    [users.followers(page), users.following(page)].map((list) =>
      list.catch((error: unknown) => {
        if (isNotFound(error)) return { ids: [] };
        throw error;
      }),
    ),
  );
  return lists.some(({ ids }) => ids.length > 0);
}

/** No user follows another if there is no UserService. */
export function createFollowedAmong(users: Users | undefined, now = sinceStart): FollowedAmong {
  if (users === undefined) return async () => new Set();
  const ask = unlessLacking(now);
  const asked = async (follower: string, people: readonly string[]): Promise<ReadonlySet<string>> => {
    const answers = await Promise.all(chunked(people, MAX_ASKED).map((part) => users.isFollowing(follower, part)));
    const follows = answers.flat();
    return new Set(people.filter((_, index) => follows[index] === true));
  };
  return async (follower, people) => {
    try {
      return await ask(
        () => asked(follower, people),
        () => listed(users, follower, people),
      );
    } catch (error) {
      // NOT_FOUND would claim that the drop does not exist.
      throw notKnown("viewer_id: the users they follow are not known", error);
    }
  };
}

async function listed(users: Users, follower: string, people: readonly string[]): Promise<ReadonlySet<string>> {
  const wanted = new Set(people);
  const followed = new Set<string>();
  for await (const { ids } of readPages((token) => users.following({ user: follower, size: MAX_ASKED, token }))) {
    for (const id of ids) if (wanted.has(id)) followed.add(id);
    if (followed.size === wanted.size) break;
  }
  return followed;
}
