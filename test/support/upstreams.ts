import { setTimeout as delay } from "node:timers/promises";
import { type handleUnaryCall, Server, ServerCredentials, type ServerUnaryCall, status } from "@grpc/grpc-js";
import {
  type Drop,
  DropDetails,
  type GetDropsByUserIDRequest,
  type GetDropsRequest,
  type PostServiceServer,
  PostServiceService,
  Visibility,
} from "../../src/gen/avion/posts.js";
import { type GetRelationsRequest, type UserServiceServer, UserServiceService } from "../../src/gen/avion/users.js";
import { compareBytes, edgeKey, maySee, newestFirst, pageAfter, type World } from "./world.js";

/** The methods the timeline service calls. */
export type UpstreamMethod =
  | "GetFollowingList"
  | "GetFollowersList"
  | "GetProfile"
  | "ListFollowChanges"
  | "GetRelations"
  | "GetHidden"
  | "GetHiddenOfMany"
  | "ListRelationChanges"
  | "ListStandings"
  | "ListStandingChanges"
  | "GetDropsByUserID"
  | "GetDrops"
  | "GetCounts"
  | "ListDrops";

/** A fault of calls; without `method` or `user` of all of them. */
export type Fault = {
  readonly method?: UpstreamMethod;
  readonly user?: string;
  /** The status to fail with. */
  readonly code?: status;
  /** Holds the answer back; what it says is as old as the call. */
  readonly delayMs?: number;
};

/** Both upstream services, listening. */
export type Upstreams = {
  readonly usersAddress: string;
  readonly postsAddress: string;
  /** Calls answered or refused so far. */
  calls(method: UpstreamMethod, user?: string): number;
  /** Calls the client gave up while they were held back. */
  abandoned(): number;
  /** Calls held back at this moment. */
  held(): number;
  /** The most calls that were held back at one time. */
  mostHeld(): number;
  /** Breaks calls until the returned function is called. */
  inject(fault: Fault): () => void;
  stop(): Promise<void>;
};

/** Behaviour of the two services beyond the world. */
export type UpstreamOptions = {
  /** False: ListDrops and ListFollowChanges are UNIMPLEMENTED, as older upstreams have them. */
  readonly reconciliation?: boolean;
  /** The longest page of a user list. */
  readonly pageLimit?: number;
  /** True: pages of drops leave out the direct ones that a call asks to leave out. */
  readonly leavesOutDirect?: boolean;
  /** Changes what a page of drops holds, as odd upstreams do. */
  readonly reshape?: Reshape;
  /** Changes a page of followers or followings. */
  readonly reshapeUsers?: (ids: string[]) => string[];
};

export type Reshape = (drops: Drop[], request: GetDropsByUserIDRequest) => Drop[];

class Refusal extends Error {
  constructor(
    readonly code: status,
    message: string,
  ) {
    super(message);
  }
}

class Desk {
  readonly #faults = new Set<Fault>();
  readonly #calls: Array<{ readonly method: UpstreamMethod; readonly user: string }> = [];
  held = 0;
  mostHeld = 0;
  abandoned = 0;

  inject(fault: Fault): () => void {
    this.#faults.add(fault);
    return () => void this.#faults.delete(fault);
  }

  calls(method: UpstreamMethod, user?: string): number {
    return this.#calls.filter((call) => call.method === method && (user === undefined || call.user === user)).length;
  }

  /** Says whether a call about the user would meet a fault. */
  isFaulty(method: UpstreamMethod, user: string): boolean {
    return this.#faultsOf(method, user).length > 0;
  }

  #faultsOf(method: UpstreamMethod, user: string): Fault[] {
    return [...this.#faults].filter((fault) => (fault.method ?? method) === method && (fault.user ?? user) === user);
  }

  unary<Request, Response>(
    method: UpstreamMethod,
    answer: (request: Request) => Response,
  ): handleUnaryCall<Request, Response> {
    return (call, callback) => {
      void this.#answer(method, call, answer).then(
        (response) => callback(null, response),
        (error: unknown) =>
          callback(
            error instanceof Refusal
              ? { code: error.code, details: error.message }
              : { code: status.UNKNOWN, details: String(error) },
          ),
      );
    };
  }

  async #answer<Request, Response>(
    method: UpstreamMethod,
    call: ServerUnaryCall<Request, Response>,
    answer: (request: Request) => Response,
  ): Promise<Response> {
    const { user_id, viewer_id } = call.request as { user_id?: string; viewer_id?: string };
    const user = user_id ?? viewer_id ?? "";
    this.#calls.push({ method, user });
    const faults = this.#faultsOf(method, user);
    const response = faults.every((fault) => fault.code === undefined) ? answer(call.request) : undefined;
    for (const { delayMs } of faults) if (delayMs !== undefined) await this.#hold(call, delayMs);
    for (const { code } of faults) if (code !== undefined) throw new Refusal(code, "injected by a test");
    return response as Response;
  }

  async #hold(call: ServerUnaryCall<unknown, unknown>, delayMs: number): Promise<void> {
    const cancelled = new AbortController();
    const giveUp = (): void => cancelled.abort();
    call.once("cancelled", giveUp);
    this.held += 1;
    this.mostHeld = Math.max(this.mostHeld, this.held);
    try {
      await delay(delayMs, undefined, { signal: cancelled.signal });
    } catch {
      this.abandoned += 1;
      throw new Refusal(status.CANCELLED, "given up by the caller");
    } finally {
      this.held -= 1;
      call.removeListener("cancelled", giveUp);
    }
  }
}

/** Serves a world over gRPC on two ports of loopback. */
export async function startUpstreams(world: World, options: UpstreamOptions = {}): Promise<Upstreams> {
  const desk = new Desk();
  const users = new Server();
  users.addService(UserServiceService, userService(world, desk, options));
  const posts = new Server();
  posts.addService(PostServiceService, postService(world, desk, options));
  const [usersPort, postsPort] = await Promise.all([listen(users), listen(posts)]);
  return {
    usersAddress: `127.0.0.1:${usersPort}`,
    postsAddress: `127.0.0.1:${postsPort}`,
    calls: (method, user) => desk.calls(method, user),
    abandoned: () => desk.abandoned,
    held: () => desk.held,
    mostHeld: () => desk.mostHeld,
    inject: (fault) => desk.inject(fault),
    stop: async () => {
      users.forceShutdown();
      posts.forceShutdown();
    },
  };
}

function userService(
  world: World,
  desk: Desk,
  { reconciliation = true, pageLimit = 1_000, reshapeUsers = (ids) => ids }: UpstreamOptions,
): Pick<
  UserServiceServer,
  | "getFollowingList"
  | "getFollowersList"
  | "listFollowChanges"
  | "getProfile"
  | "getRelations"
  | "getHidden"
  | "getHiddenOfMany"
  | "listRelationChanges"
  | "listStandings"
  | "listStandingChanges"
> {
  type ListRequest = { user_id: string; page_size: number; page_token: string };
  const list = (ids: readonly string[], request: ListRequest) => {
    const size = Math.min(request.page_size > 0 ? request.page_size : 100, pageLimit);
    const { page, last } = pageAfter(ids, Buffer.from(request.page_token, "base64url").toString(), size);
    return {
      user_ids: reshapeUsers(page),
      next_page_token: Buffer.from(last).toString("base64url"),
      total_count: ids.length,
    };
  };
  return {
    getFollowingList: desk.unary("GetFollowingList", (request: ListRequest) =>
      list(world.followingOf(request.user_id), request),
    ),
    getFollowersList: desk.unary("GetFollowersList", (request: ListRequest) =>
      list(world.followersOf(request.user_id), request),
    ),
    getRelations: desk.unary("GetRelations", ({ user_id, target_ids }: GetRelationsRequest) => ({
      relations: target_ids.map((target) => world.relation(user_id, target)),
    })),
    getHidden: desk.unary("GetHidden", ({ user_id }: { user_id: string }) => ({
      hidden: hiddenFrom(world, user_id),
      next_page_token: "",
    })),
    getHiddenOfMany: desk.unary("GetHiddenOfMany", ({ user_ids }: { user_ids: string[] }) => ({
      users: user_ids
        .filter((user) => !desk.isFaulty("GetHidden", user))
        .map((user_id) => ({ user_id, hidden: hiddenFrom(world, user_id) }))
        .filter(({ hidden }) => hidden.length <= 100),
    })),
    listRelationChanges: desk.unary("ListRelationChanges", ({ since, until }: ChangesRequest) => {
      if (!reconciliation) throw new Refusal(status.UNIMPLEMENTED, "this service cannot do that");
      return { changes: world.changedRelations(since, until), next_page_token: "" };
    }),
    listStandings: desk.unary("ListStandings", () => ({ entries: world.standings.all(), next_page_token: "" })),
    listStandingChanges: desk.unary("ListStandingChanges", ({ since, until }: ChangesRequest) => {
      if (!reconciliation) throw new Refusal(status.UNIMPLEMENTED, "this service cannot do that");
      return { entries: world.standings.changed(since, until), next_page_token: "" };
    }),
    getProfile: desk.unary("GetProfile", ({ user_id }: { user_id: string }) => {
      const profile = world.profileOf(user_id);
      if (profile === undefined) throw new Refusal(status.NOT_FOUND, "user_id: has no profile");
      return { profile };
    }),
    listFollowChanges: desk.unary("ListFollowChanges", (request: ChangesRequest) => {
      if (!reconciliation) throw new Refusal(status.UNIMPLEMENTED, "this service cannot do that");
      const { items, next_page_token } = pageOfChanges(
        world.changedEdges(request.since, request.until),
        (edge) => [edge.changed_at, edgeKey(edge)],
        request,
      );
      return { changes: items, next_page_token };
    }),
  };
}

const hiddenFrom = (world: World, user: string) =>
  [...world.hiddenFrom(user)].map(([target_id, hiding]) => ({
    ...{ target_id, reposts_only: hiding === "reposts", expires_at: world.muteEnd(user, target_id) },
    blocked: world.relation(user, target_id).blocking || world.relation(user, target_id).blocked_by,
  }));

function postService(
  world: World,
  desk: Desk,
  { reconciliation = true, leavesOutDirect = false, reshape = (drops) => drops }: UpstreamOptions,
): Pick<PostServiceServer, "getDropsByUserId" | "getDrops" | "getCounts" | "listDrops"> {
  return {
    getDropsByUserId: desk.unary("GetDropsByUserID", (request: GetDropsByUserIDRequest) => {
      const isOlder = olderThan(world, request);
      const isWanted = leavesOutDirect ? wantedBy(request) : () => true;
      const older = world.dropsOf(request.user_id).filter((drop) => isOlder(drop) && isWanted(drop));
      return { drops: reshape(older.slice(0, request.limit > 0 ? request.limit : 20), request), end: false };
    }),
    getDrops: desk.unary("GetDrops", ({ drop_ids }: GetDropsRequest) => ({
      results: drop_ids
        .flatMap((id) => world.find(id) ?? [])
        .map(({ drop_id, user_id, created_at }) => ({
          ...{ drop: DropDetails.fromPartial({ drop_id, user_id, created_at }), counts: undefined, viewer: undefined },
        })),
    })),
    getCounts: desk.unary("GetCounts", (request: { drop_ids: string[] }) => ({
      counts: request.drop_ids.map((id) => world.countsOf(id)),
    })),
    listDrops: desk.unary("ListDrops", (request: ChangesRequest) => {
      if (!reconciliation) throw new Refusal(status.UNIMPLEMENTED, "this service cannot do that");
      const { items, next_page_token } = pageOfChanges(
        world.changedDrops(request.since, request.until),
        ({ changedAt, drop }) => [changedAt, drop.drop_id],
        request,
      );
      return { drops: items.map(({ drop }) => drop), next_page_token };
    }),
  };
}

/** before alone: created before; max_id alone: older than that drop; both: older than the pair. */
function olderThan(world: World, { max_id, before }: { max_id: string; before: number }): (drop: Drop) => boolean {
  if (max_id === "") return before === 0 ? () => true : (drop) => drop.created_at < before;
  const created_at = before === 0 ? world.find(max_id)?.created_at : before;
  if (created_at === undefined) throw new Refusal(status.INVALID_ARGUMENT, "max_id is not a known drop");
  return (drop) => newestFirst({ created_at, drop_id: max_id }, drop) < 0;
}

function wantedBy({ reader_id, without_direct }: GetDropsByUserIDRequest): (drop: Drop) => boolean {
  if (without_direct) return ({ visibility }) => visibility !== Visibility.DIRECT;
  return reader_id === "" ? () => true : (drop) => maySee(reader_id, drop);
}

type ChangesRequest = { since: number; until: number; page_size: number; page_token: string };

/** The token is the last change shown, so that changes meanwhile make nobody skip one. */
function pageOfChanges<T>(all: readonly T[], keyOf: (item: T) => readonly [number, string], request: ChangesRequest) {
  const after = request.page_token === "" ? undefined : (JSON.parse(request.page_token) as readonly [number, string]);
  const rest = after === undefined ? all : all.filter((item) => isAfter(keyOf(item), after));
  const page = rest.slice(0, request.page_size > 0 ? Math.min(request.page_size, 1_000) : 100);
  const last = page.at(-1);
  const more = rest.length > page.length && last !== undefined;
  return { items: page, next_page_token: more ? JSON.stringify(keyOf(last)) : "" };
}

function isAfter([time, id]: readonly [number, string], [otherTime, otherId]: readonly [number, string]): boolean {
  return time > otherTime || (time === otherTime && compareBytes(id, otherId) > 0);
}

function listen(server: Server): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
      if (error) reject(error);
      else resolve(port);
    });
  });
}
