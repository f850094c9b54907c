import type { Client } from "@grpc/grpc-js";
import { createCache } from "../contracts/caches.js";
import type { DropPage } from "../contracts/timelines.js";
import { isTime } from "../contracts/times.js";
import { type Counts, type ListDropsRequest, PostServiceService } from "../gen/avion/posts.js";
import {
  type Erasure,
  type HiddenUser,
  type ListFollowChangesRequest,
  type ListRelationChangesRequest,
  type ListStandingChangesRequest,
  type ListStandingsRequest,
  type Relation,
  type SetStandingRequest,
  UserServiceService,
} from "../gen/avion/users.js";
import { codeOf, invalid, oneLine } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import type { IdPage } from "../kernel/paging.js";
import { HOUR } from "../kernel/time.js";
import { nameOf } from "../platform/grpc/message-types.js";
import type { TlsFiles } from "../platform/tls.js";
import { counter } from "../telemetry/meters.js";
import { broken, checkPage, type LeaveOut, refuseLong, totalOf, validUsers } from "./answers.js";
import {
  connectUpstream,
  createCallUpstream,
  isExhausted,
  isInvalidArgument,
  isTooLarge,
  isUnimplemented,
} from "./call.grpc.js";
import type { DropsRequest } from "./drop-pages.js";
import { createDropReads, type ReadDrops } from "./drop-reads.js";
import { listsOn } from "./lists.grpc.js";
import { createShownDrops } from "./shown-drops.js";

export { isInvalidArgument, isNotFound, isOfUpstream, isUnimplemented } from "./call.grpc.js";

/** Returns the error `invalid` if the users service refuses the id that it is asked about, else the error itself. */
export const refusalOfUser = (error: unknown): unknown =>
  codeOf(error) === "failed" && isInvalidArgument(error) ? invalid("user_id", oneLine(error)) : error;

const leftOut = counter(
  "timeline_upstream_left_out",
  "Items left out of an upstream's answer because they break the contract",
);

const unorderedPages = counter(
  "timeline_upstream_unordered",
  "Pages of an upstream that do not list the newest drops first",
);

const FAULTS = {
  leaveOut: [leftOut, "items of an upstream's answer that break the contract are left out"],
  unordered: [unorderedPages, "an upstream does not list the newest drops first: reading them takes more calls"],
} as const;

type Faults = Readonly<Record<keyof typeof FAULTS, LeaveOut>>;

/** Counts each fault, and logs once an hour for each method and subject. */
function createFaults(log: Logger | undefined): Faults {
  const logged = createCache<true>("leftOutItems", { sizeOf: () => 0, ttl: HOUR });
  const reporting =
    (fault: keyof typeof FAULTS): LeaveOut =>
    (method, subject, count = 1) => {
      if (count === 0) return;
      const [counted, line] = FAULTS[fault];
      counted.add(count, { method });
      const name = `${fault} ${method} ${subject}`;
      if (logged.has(name)) return;
      logged.set(name, true);
      log?.warn({ method, subject: encodeId(subject), count }, line);
    };
  return { leaveOut: reporting("leaveOut"), unordered: reporting("unordered") };
}

interface ListPageRequest {
  readonly user: string;
  readonly size: number;
  readonly token: string;
  /** Deadline, in ms since the epoch. */
  readonly deadline?: number | undefined;
}

export type Upstreams = ReturnType<typeof onUsers> & ReturnType<typeof onPosts> & { readonly leaveOut: LeaveOut };

export type Users = ReturnType<typeof connectUsers>;

export type UpstreamChannels = ReturnType<typeof openUpstreamChannels>;

export interface UpstreamOptions {
  readonly userServiceAddr: string;
  readonly postServiceAddr: string;
  readonly tls: TlsFiles;
  /** Undefined: items that are left out of answers are only counted. */
  readonly log?: Logger | undefined;
}

/** Connects at the first call, and reconnects by itself. */
export function openUpstreamChannels(options: UpstreamOptions) {
  const users = connectUpstream(options.userServiceAddr, options.tls);
  const posts = connectUpstream(options.postServiceAddr, options.tls);
  const faults = createFaults(options.log);
  return {
    /** Each caller detects outages from its own calls. */
    upstreams: (): Upstreams => ({
      ...onUsers(users, faults.leaveOut),
      ...onPosts(posts, faults),
      leaveOut: faults.leaveOut,
    }),
    close(): void {
      users.close();
      posts.close();
    },
  };
}

export function connectUpstreams(options: UpstreamOptions): Upstreams & Pick<UpstreamChannels, "close"> {
  const { upstreams, close } = openUpstreamChannels(options);
  return { ...upstreams(), close };
}

export function connectUsers(address: string, tls: TlsFiles, log?: Logger) {
  const users = connectUpstream(address, tls);
  const { leaveOut } = createFaults(log);
  return { ...onUsers(users, leaveOut), leaveOut, close: () => users.close() };
}

export function connectPosts(address: string, tls: TlsFiles, log?: Logger) {
  const posts = connectUpstream(address, tls);
  return { ...onPosts(posts, createFaults(log)), close: () => posts.close() };
}

function onUsers(users: Client, leaveOut: LeaveOut) {
  const { once: call, inTurn } = createCallUpstream(users);
  const { getFollowersList, getFollowingList, isFollowing, getRelations, getHidden, getProfile } = UserServiceService;
  const { getHiddenOfMany, listFollowChanges, listRelationChanges, eraseUser, getErasure } = UserServiceService;
  const { setApproval } = UserServiceService;
  const list = async (
    method: typeof getFollowersList | typeof getFollowingList,
    page: ListPageRequest,
  ): Promise<IdPage> => {
    const { user, size, token, deadline } = page;
    const request = { user_id: user, page_size: size, page_token: token };
    const ask = () => call(method, request, { subject: user, deadline });
    const answer = await (deadline === undefined ? inTurn(method, user, ask) : ask());
    const { user_ids: ids, next_page_token: next, total_count } = answer;
    checkPage(nameOf(method), token, { length: ids.length, next });
    const total = totalOf(total_count, { length: ids.length, next });
    return { ids: validUsers(ids, (count) => leaveOut(nameOf(method), user, count)), next, total };
  };
  return {
    followers: (page: ListPageRequest) => list(getFollowersList, page),
    following: (page: ListPageRequest) => list(getFollowingList, page),
    /** Answers are in the order of `others`. */
    isFollowing: async (user: string, others: readonly string[]): Promise<readonly boolean[]> =>
      (await call(isFollowing, { follower_id: user, following_ids: [...others] }, { subject: user })).following,
    /** Answers are in the order of `others`. A missing one would show a drop between blocked people. */
    relations: async (user: string, others: readonly string[]): Promise<readonly Relation[]> => {
      const { relations } = await call(getRelations, { user_id: user, target_ids: [...others] }, { subject: user });
      if (relations.length !== others.length || relations.some(({ target_id }, index) => target_id !== others[index]))
        throw broken(nameOf(getRelations), "its relations are not those asked for");
      return relations;
    },
    /** Reads one page of the users whose drops a user does not see. */
    hidden: async ({ user, size, token, deadline }: ListPageRequest) => {
      const request = { user_id: user, page_size: size, page_token: token };
      const { hidden, next_page_token: next } = await call(getHidden, request, { subject: user, deadline });
      checkPage(nameOf(getHidden), token, { length: hidden.length, next });
      return { hidden, next };
    },
    /** Asks about at most 256 users. The deadline is in ms since the epoch. */
    hiddenOfMany: async (users: readonly string[], deadline: number): Promise<ReadonlyMap<string, HiddenUser[]>> => {
      const about = { subject: nameOf(getHiddenOfMany), deadline };
      const { users: answers } = await call(getHiddenOfMany, { user_ids: [...users] }, about);
      for (const { hidden } of answers) refuseLong(nameOf(getHiddenOfMany), hidden.length);
      return new Map(answers.map(({ user_id, hidden }) => [user_id, hidden]));
    },
    /** @throws AppError; `isNotFound` tells that the user has no profile */
    profile: (user: string) => call(getProfile, { user_id: user }, { subject: user }),
    /** Sets whether a user approves followers. */
    setApproval: async (user: string, approves: boolean): Promise<void> =>
      void (await call(setApproval, { user_id: user, approves_followers: approves }, { subject: user })),
    erase: async (user: string, onlyIfKnown = false): Promise<Erasure | undefined> =>
      (await call(eraseUser, { user_id: user, only_if_known: onlyIfKnown }, { subject: user })).erasure,
    /** @throws AppError; `isNotFound` tells that the user has no erasure */
    erasure: async (user: string): Promise<Erasure | undefined> =>
      (await call(getErasure, { user_id: user }, { subject: user })).erasure,
    /** Reads one page of the edges changed in a window. */
    changedEdges: async (request: ListFollowChangesRequest) => {
      const { changes, next_page_token: next } = await call(listFollowChanges, request, {
        subject: "ListFollowChanges",
      });
      checkPage("ListFollowChanges", request.page_token, { length: changes.length, next });
      return { changes, next };
    },
    /** Reads one page of the blocks and mutes changed in a window. */
    changedRelations: async (request: ListRelationChangesRequest) => {
      const { changes, next_page_token: next } = await call(listRelationChanges, request, {
        subject: "ListRelationChanges",
      });
      checkPage("ListRelationChanges", request.page_token, { length: changes.length, next });
      return { changes, next };
    },
    ...standingsOn(call),
    ...listsOn(call, leaveOut),
  };
}

function standingsOn(call: ReturnType<typeof createCallUpstream>["once"]) {
  const { setStanding, getStanding, listStandings, listStandingChanges } = UserServiceService;
  return {
    /** Reads one page of the users and hosts that are limited or suspended. */
    standings: async (request: ListStandingsRequest) => {
      const { entries, next_page_token: next } = await call(listStandings, request, { subject: "ListStandings" });
      checkPage("ListStandings", request.page_token, { length: entries.length, next });
      return { entries, next };
    },
    /** Reads one page of the standings changed in a window. */
    changedStandings: async (request: ListStandingChangesRequest) => {
      const { entries, next_page_token: next } = await call(listStandingChanges, request, {
        subject: "ListStandingChanges",
      });
      checkPage("ListStandingChanges", request.page_token, { length: entries.length, next });
      return { entries, next };
    },
    setStanding: (request: SetStandingRequest) =>
      call(setStanding, request, { subject: request.user_id || request.host }),
    standing: async (request: { readonly user_id: string; readonly host: string }) =>
      (await call(getStanding, request, { subject: request.user_id || request.host })).entry,
  };
}

function onPosts(posts: Client, { leaveOut, unordered }: Faults) {
  const { open, once: call, inTurn } = createCallUpstream(posts);
  const { getDropsByUserId, getDrops, getCounts, listDrops, getRetention } = PostServiceService;
  const dropReads = createDropReads({ leaveOut, unordered, isTooLarge, isInvalidArgument });
  /** Opens the reads of drops for one piece of work. */
  const openDropsByUser = (): ReadDrops => dropReads(open(getDropsByUserId));
  return {
    openDropsByUser,
    dropsByUser: (request: DropsRequest, deadline?: number): Promise<DropPage> => {
      const ask = () => openDropsByUser()(request, deadline);
      return deadline === undefined ? inTurn(getDropsByUserId, request.author, ask) : ask();
    },
    shownDrops: createShownDrops({
      call: (request, about) => call(getDrops, request, about),
      isExhausted,
      isInvalidArgument,
      isUnimplemented,
    }),
    /** Asks about at most 200 drops of one user. */
    counts: async (user: string, ids: readonly string[]): Promise<readonly Counts[]> => {
      const { counts } = await call(getCounts, { drop_ids: [...ids] }, { subject: user });
      const kept = counts.filter(({ likes, shares, replies }) => [likes, shares, replies].every(Number.isSafeInteger));
      leaveOut(nameOf(getCounts), user, counts.length - kept.length);
      return kept;
    },
    /** Reads one page of the drops changed in a window. */
    changedDrops: async (request: ListDropsRequest) => {
      const { drops, next_page_token: next } = await call(listDrops, request, { subject: "ListDrops" });
      checkPage("ListDrops", request.page_token, { length: drops.length, next });
      return { drops, next };
    },
    retention: async () => {
      const retention = await call(getRetention, {}, { subject: "GetRetention" });
      // An invalid time would hide every drop.
      if (!isTime(retention.kept_since)) throw broken("GetRetention", "kept_since is no time");
      return retention;
    },
  };
}
