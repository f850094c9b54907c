import { credentials } from "@grpc/grpc-js";
import type { OutboxEvent } from "../../src/contracts/outbox.js";
import type { Delivery } from "../../src/delivery/handler.js";
import { ListServiceClient, ListServiceService } from "../../src/gen/avion/lists.js";
import * as wire from "../../src/gen/avion/users.js";
import { createBoundedQueue } from "../../src/kernel/concurrency.js";
import { silent } from "../../src/kernel/logger.js";
import { createPageTokens } from "../../src/kernel/paging.js";
import type { Limit } from "../../src/kernel/variables.js";
import { OUTBOX_MIGRATIONS } from "../../src/outbox/index.js";
import { createOutboxStore, type OutboxStore } from "../../src/outbox/store.sql.js";
import type { Db } from "../../src/platform/db/db.js";
import { serveGrpc } from "../../src/platform/grpc/serve.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import { createListCache, MAX_CACHED_IDS } from "../../src/state/caches/user-lists.redis.js";
import { createLists } from "../../src/state/entries/lists.redis.js";
import type { Limited } from "../../src/state/limits/limits.redis.js";
import { createStandings } from "../../src/state/standing/standings.redis.js";
import { createApprovalStore } from "../../src/users/approvals.sql.js";
import { CALM_LANE, createApplyEdges, HOT_LANE } from "../../src/users/edges.js";
import { createEdgeStore, type EdgeStore } from "../../src/users/edges.sql.js";
import { erasureMethods } from "../../src/users/erasure-methods.js";
import { createErasureStore } from "../../src/users/erasures.sql.js";
import { changeFollows } from "../../src/users/follows.js";
import {
  createListsService,
  createUsersService,
  USERS_MIGRATIONS,
  type UsersServiceDeps,
} from "../../src/users/index.js";
import { createReadList } from "../../src/users/lists.js";
import { startAccepting } from "../../src/users/maintenance.js";
import { createMemberListStore } from "../../src/users/member-lists.sql.js";
import { createIsHot, createPrepareUserEvents } from "../../src/users/prepare.js";
import { profiles } from "../../src/users/profiles.js";
import { createListStore, createProfileStore, createReadDated, type ListStore } from "../../src/users/reads.sql.js";
import { changeRelations } from "../../src/users/relation-methods.js";
import { createRelationReads } from "../../src/users/relation-reads.sql.js";
import { createRelationStore } from "../../src/users/relations.sql.js";
import { createStandingStore } from "../../src/users/standings.sql.js";
import type { DatabaseServer } from "./databases.js";
import { contextWith, deliveryOf } from "./deliveries.js";
import { callsOf } from "./grpc.js";
import { unlimited } from "./limits.js";

/** A database with the schema of the users service. */
export const newUsersDatabase = (server: DatabaseServer): Promise<Db> =>
  server.emptyDatabase([OUTBOX_MIGRATIONS, USERS_MIGRATIONS]);

/** Options of a process of the users service. */
export interface UsersOptions {
  readonly db: Db;
  readonly scripts: Scripts;
  readonly maxFollowing?: number;
  readonly limitFollows?: Limit;
  readonly limited?: Limited;
  readonly maxRelations?: number;
  readonly hotRate?: number;
  readonly maxCachedIds?: number;
  readonly now?: () => number;
  readonly wrap?: (store: ListStore) => ListStore;
  readonly wrapHot?: (apply: EdgeStore["apply"]) => EdgeStore["apply"];
  readonly wakeRelay?: () => void;
  readonly wakeErasures?: () => void;
}

/** Everything of the users service that one process holds, as the composition root puts it together. */
export function usersProcess(options: UsersOptions) {
  const { db, scripts, maxFollowing = 7_500, hotRate = 200, now = Date.now, wakeRelay = () => undefined } = options;
  const { limitFollows, limited = unlimited } = options;
  const { maxRelations = 10_000, wakeErasures = () => undefined } = options;
  const { wrap = (store) => store, wrapHot = (apply) => apply, maxCachedIds = MAX_CACHED_IDS } = options;
  const cache = createListCache(scripts);
  const bounded = createBoundedQueue({ atOnce: 8, waiting: 2_000 });
  const edges = createEdgeStore(db);
  const standings = createStandings(scripts);
  const store = wrap(createListStore(db));
  const erasures = createErasureStore(db);
  const approvals = createApprovalStore(db);
  const readList = createReadList({ store, cache, bounded, maxCachedIds, isErased: erasures.isErased });
  const deps: UsersServiceDeps = {
    edges,
    relations: createRelationStore(db),
    relationReads: createRelationReads(db),
    profiles: createProfileStore(db),
    approvals,
    standings: createStandingStore(db),
    standingOf: standings.of,
    cache,
    readList,
    readDated: createReadDated(db),
    bounded,
    tokens: createPageTokens("a secret of tests"),
    maxFollowing,
    limitFollows,
    limited,
    maxRelations,
    erasures,
    wakeRelay,
    wakeErasures,
  };
  return {
    readList,
    ...changeFollows(deps),
    ...changeRelations(deps),
    endMutes: createRelationStore(db).endMutes,
    ...erasureMethods(deps),
    setProfile: profiles(deps).setProfile,
    accepting: () => startAccepting({ accept: approvals.accept, cache, wakeRelay, maxFollowing, log: silent }),
    normal: createApplyEdges({ apply: edges.apply, wakeRelay }, CALM_LANE),
    hot: createApplyEdges({ apply: wrapHot(edges.apply), wakeRelay }, HOT_LANE),
    standings,
    prepare: createPrepareUserEvents({
      cache,
      recordStandings: standings.record,
      isHot: createIsHot(hotRate, now),
      log: silent,
    }),
    service: createUsersService(deps, silent),
    lists: createListsService(
      { ...deps, memberLists: createMemberListStore(db), forgetTimeline: createLists(scripts).forget },
      silent,
    ),
  };
}

export type UsersProcess = ReturnType<typeof usersProcess>;

/** An edge as the stream hands it out. */
const edgeDelivery = (event: Pick<OutboxEvent, "subject" | "body">): Delivery =>
  deliveryOf({ stream: "EDGES", consumer: "edges", subject: event.subject, body: Buffer.from(event.body) });

/** Hands the stream's messages to handlers, several at a time as a consumer does. */
export async function deliver(handlers: readonly UsersProcess["normal"][], events: readonly OutboxEvent[]) {
  await Promise.all(
    events.map((event, index) =>
      (handlers[index % handlers.length] as UsersProcess["normal"])(edgeDelivery(event), contextWith()),
    ),
  );
}

/** Takes events out of both outboxes as relays do, `publish` in the place of NATS, until none is left. */
export async function relayAll(
  { db, prepare }: { db: Db; prepare: UsersProcess["prepare"] },
  publish: (events: readonly OutboxEvent[]) => Promise<void>,
): Promise<OutboxEvent[]> {
  const stores = (["edges", "users"] as const).map((source) => createOutboxStore(db, source));
  const published: OutboxEvent[] = [];
  const relay = async (store: OutboxStore): Promise<number> => {
    const claimed = await store.claim(500, 10_000);
    if (claimed.length === 0) return 0;
    const prepared = await prepare(claimed);
    await publish(prepared);
    await store.markPublished(claimed.map(({ id }) => id));
    published.push(...prepared);
    return claimed.length;
  };
  for (;;) {
    let claimed = 0;
    for (const store of stores) claimed += await relay(store);
    if (claimed === 0) return published;
  }
}

/** Publishes everything and applies the edges, until both lists show all there is; returns what was published. */
export function settle(db: Db, process: UsersProcess): Promise<OutboxEvent[]> {
  return relayAll({ db, prepare: process.prepare }, (events) =>
    deliver(
      [process.normal],
      events.filter(({ subject }) => subject.startsWith("edges.")),
    ),
  );
}

/** A door in front of the answers of queries, which it counts. */
export function createGate() {
  let opened = Promise.resolve();
  let open = (): void => undefined;
  const gate = {
    /** Queries that were answered, held back or not. */
    queries: 0,
    close(): void {
      opened = new Promise((resolve) => {
        open = resolve;
      });
    },
    open: (): void => open(),
    through: async <Answer>(query: Promise<Answer>): Promise<Answer> => {
      const answer = await query;
      gate.queries += 1;
      await opened;
      return answer;
    },
  };
  return gate;
}

/** Serves a process over gRPC, with a client. */
export async function serveUsers({ service, lists }: Pick<UsersProcess, "service" | "lists">) {
  const server = await serveGrpc("127.0.0.1:0", [service, lists], {});
  const address = `127.0.0.1:${server.port}`;
  const client = new wire.UserServiceClient(address, credentials.createInsecure());
  const listsClient = new ListServiceClient(address, credentials.createInsecure());
  return {
    address,
    ...callsOf(client, wire.UserServiceService),
    lists: callsOf(listsClient, ListServiceService),
    close: async () => {
      client.close();
      listsClient.close();
      await server.close(1_000);
    },
  };
}

export type UsersClient = Awaited<ReturnType<typeof serveUsers>>;

/** Reads a list to its end by its pages. */
export async function wholeList(
  get: UsersClient["getFollowersList"],
  user_id: string,
  page_size = 0,
  between: () => Promise<void> = async () => undefined,
): Promise<string[]> {
  const ids: string[] = [];
  for (let page_token = ""; ; ) {
    const page = await get({ user_id, page_size, page_token });
    ids.push(...page.user_ids);
    page_token = page.next_page_token;
    if (page_token === "") return ids;
    await between();
  }
}

/** Counts that differ from their rows, and edges that are in one list only. */
export const WRONG_LISTS = `
SELECT 'following' AS list, user_id FROM users.following_counts c
WHERE following <> (SELECT count(*) FROM users.followings f WHERE f.follower_id = c.user_id AND f.active)
UNION ALL SELECT 'followers', user_id FROM users.follower_counts c
WHERE followers <> (SELECT count(*) FROM users.followers f WHERE f.following_id = c.user_id AND f.active)
UNION ALL SELECT 'both', f.follower_id FROM users.followings f FULL JOIN users.followers g USING (follower_id, following_id)
WHERE coalesce(f.active, false) <> coalesce(g.active, false)`;

/** A process whose writes commit once `release` is called; `held` resolves when the first one waits for that. */
export function heldProcess(db: Db, scripts: Scripts) {
  let release = (): void => undefined;
  let arrived = (): void => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  const held = new Promise<void>((resolve) => (arrived = resolve));
  const transaction: Db["transaction"] = (work) =>
    db.transaction(async (queries) => {
      const result = await work(queries);
      arrived();
      await released;
      return result;
    });
  const query: Db["query"] = (...statement) => transaction((queries) => queries.query(...statement));
  return { process: usersProcess({ db: { ...db, query, transaction }, scripts }), held, release };
}
