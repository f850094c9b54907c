import { type ServiceError, status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { silent } from "../../src/kernel/logger.js";
import type { ReactionKey } from "../../src/posts/drops/events.js";
import { createCalibration } from "../../src/posts/maintenance.js";
import { createPostsStore } from "../../src/posts/store.sql.js";
import { countingRows } from "../support/counted-rows.js";
import { longTest } from "../support/databases.js";
import { describePosts } from "../support/describe-posts.js";
import { eventually } from "../support/eventually.js";
import { asAnotherProcess, type PostsHarness, post, refusal } from "../support/posts.js";
import { forget, rowsNaming, startRelayOf, type Told } from "../support/posts-erasure.js";
import { below, duplicatedAndShuffled, oneOf, type Random, seeded } from "../support/random.js";
import { storeReposts } from "../support/reposts.js";
import { quickTest as test } from "../support/suite.js";

const { PUBLIC, UNLISTED, FOLLOWERS, DIRECT } = Visibility;

interface Known {
  readonly id: string;
  readonly author: string;
  readonly visibility: Visibility;
  readonly recipients: readonly string[];
  readonly parent?: string;
  readonly likes: Set<string>;
  /** Reposts by their sharers. */
  readonly shares: Map<string, string>;
  deleted: boolean;
}

/** Nothing was done in the name of the person. */
const NOTHING = Symbol("nothing");

/** What a history did: what is refused changes nothing. */
class Model {
  readonly drops: Known[] = [];
  readonly remote = new Map<string, readonly string[]>();

  constructor(
    readonly posts: PostsHarness,
    readonly random: Random,
    readonly people: readonly string[],
  ) {}

  /** A person does something; resolves to whether it was done in their name. */
  async step(user: string): Promise<boolean> {
    try {
      return (await this.#act(user)) !== NOTHING;
    } catch (error) {
      const { code } = error as ServiceError;
      const isRefused = [status.FAILED_PRECONDITION, status.NOT_FOUND, status.INVALID_ARGUMENT].includes(code);
      if (!isRefused) throw error;
      return false;
    }
  }

  async #act(user_id: string): Promise<unknown> {
    const { random, drops } = this;
    const { call } = this.posts;
    const dice = below(random, 12);
    if (dice < 3 || drops.length < 5) return this.#create(user_id, undefined);
    const drop = oneOf(random, drops);
    const reaction = { drop_id: drop.id, user_id };
    if (dice < 5) return this.#create(user_id, drop.id);
    if (dice < 7) return call.likeDrop(reaction).then(() => drop.likes.add(user_id));
    if (dice < 8) return call.unlikeDrop(reaction).then(() => drop.likes.delete(user_id));
    if (dice < 9) return call.shareDrop(reaction).then(({ repost_id }) => drop.shares.set(user_id, repost_id));
    if (dice < 10) return call.unshareDrop(reaction).then(() => drop.shares.delete(user_id));
    if (dice < 11) return this.#editOrDelete(user_id);
    const uri = `https://far.example/${user_id.length}/${random()}`;
    const recipients = this.#some();
    const object = { uri, kind: RemoteKind.DROP, document: "{}", visibility: DIRECT, recipients };
    await call.putRemoteObject(object);
    this.remote.set(uri, recipients);
    return NOTHING;
  }

  async #create(author: string, parent: string | undefined): Promise<void> {
    const { random } = this;
    const visibility = oneOf(random, [PUBLIC, PUBLIC, UNLISTED, FOLLOWERS, DIRECT]);
    const recipients = visibility === DIRECT ? this.#some() : [];
    const keyed = random() < 0.3 ? { idempotency_key: `k${random()}` } : {};
    const asked = { user_id: author, visibility, recipients, reply_to: parent ?? "", ...keyed };
    const id = await post(this.posts, asked);
    const made = { id, author, visibility, recipients, likes: new Set<string>(), shares: new Map(), deleted: false };
    this.drops.push({ ...made, ...(parent === undefined ? {} : { parent }) });
  }

  #some(): string[] {
    return this.people.filter(() => this.random() < 0.4);
  }

  async #editOrDelete(user_id: string): Promise<unknown> {
    const own = this.drops.filter(({ author, deleted }) => author === user_id && !deleted);
    if (own.length === 0) return NOTHING;
    const drop = oneOf(this.random, own);
    const named = { drop_id: drop.id, user_id };
    if (this.random() < 0.6) return this.posts.call.editDrop({ ...named, body: "edited" });
    await this.posts.call.deleteDrop(named);
    drop.deleted = true;
    return named;
  }

  /** Compares all that is left with a world that never knew the person. */
  async expectWithout(erased: string): Promise<void> {
    const { call } = this.posts;
    const isOther = (user: string): boolean => user !== erased;
    const live = this.drops.filter(({ author, deleted }) => !deleted && isOther(author));
    const seen: object[] = [];
    for (const { id } of live) {
      const { counts } = await call.getCounts({ drop_ids: [id] });
      const { likes } = await call.listLikes({ drop_id: id });
      const { shares } = await call.listShares({ drop_id: id });
      const { drop } = await call.getDrop({ drop_id: id });
      const names = {
        likes: likes.map(({ user_id }) => user_id).sort(),
        shares: shares.map(({ user_id }) => user_id).sort(),
      };
      seen.push({ ...counts[0], names, recipients: drop?.recipients.sort() });
    }
    const expected = live.map(({ id, likes, shares, recipients }) => {
      const names = { likes: [...likes].filter(isOther).sort(), shares: [...shares.keys()].filter(isOther).sort() };
      const replies = live.filter(({ parent, visibility }) => parent === id && visibility <= UNLISTED).length;
      const counts = { drop_id: id, likes: names.likes.length, shares: names.shares.length, replies };
      return { ...counts, names, recipients: recipients.filter(isOther).sort() };
    });
    expect(seen).toEqual(expected);
    const reposts = live.flatMap(({ shares }) => [...shares].filter(([sharer]) => isOther(sharer)).map(([, id]) => id));
    const listed: string[] = [];
    for (const user_id of this.people.filter(isOther)) {
      const { drops } = await call.listUserDrops({
        user_id,
        viewer_id: user_id,
        replies: true,
        reposts: true,
        page_size: 100,
      });
      listed.push(...drops.map(({ drop_id }) => drop_id));
    }
    expect(listed.sort()).toEqual([...live.map(({ id }) => id), ...reposts].sort());
    for (const [uri, recipients] of this.remote) {
      const { object } = await call.getRemoteObject({ uri });
      expect(object?.recipients).toEqual(recipients.filter(isOther));
    }
  }
}

const reactionsIn = (told: readonly Told[]): ReactionKey[] =>
  told.filter(({ source }) => source === "reactions").map(({ body }) => JSON.parse(body) as ReactionKey);

const STEPS_EACH = 60;

describePosts("histories in which a user is erased", { emptied: true }, (posts, { name }) => {
  const calibrated = () =>
    createCalibration({ drops: posts.store.reactions, lease: posts.store.lease, log: silent })(1_000);

  /** Every deleted drop was told of once, after it was created. */
  const expectTold = async (told: readonly Told[]): Promise<void> => {
    const rows = await posts.db.query<{ id: string }>(
      "SELECT drop_id::text AS id FROM posts.drops WHERE deleted_at IS NOT NULL",
    );
    const subjects = new Map(rows.map(({ id }) => [id, [] as string[]]));
    for (const { key, subject } of told) if (subject !== "drops.edited") subjects.get(key)?.push(subject);
    for (const found of subjects.values()) expect(found).toEqual(["drops.created", "drops.deleted"]);
  };

  test.each([
    [1, 0.5],
    [2, 0.4],
    [3, 0.6],
    [4, 1],
    [5, 1],
  ])(
    "nothing is left of the user, and all is as if they had never been (seed %i, erased after %d)",
    async (seed, after) => {
      const random = seeded(seed);
      const erased = "evé: 1";
      const people = ["ada", "bob", "cid", "dan", erased];
      const model = new Model(posts, random, people);
      const relay = startRelayOf(posts.db, 5);
      let steps = 0;
      let counted = 0;
      const refusedAfter: boolean[] = [];
      let isErased = false;
      const worker = async (user: string): Promise<void> => {
        for (let step = 0; step < STEPS_EACH; step++) {
          const wasErased = isErased;
          const done = await model.step(user);
          if (wasErased && user === erased) refusedAfter.push(done);
          steps += 1;
          // Events are counted while others are on their way.
          const some = reactionsIn(relay.told.slice(counted, counted + below(random, 20)));
          counted += some.length;
          if (some.length > 0) await posts.store.reactions.count(some);
        }
      };
      const erase = async (): Promise<void> => {
        await eventually(() => steps >= after * people.length * STEPS_EACH, "the time of the erasure");
        await Promise.all([forget(posts.store, erased), forget(posts.store, erased)]);
        isErased = true;
      };
      await Promise.all([...people.map(worker), erase()]);
      await forget(posts.store, erased);
      const told = await relay.close();
      await Promise.all(
        duplicatedAndShuffled(random, reactionsIn(told)).map((one) => posts.store.reactions.count([one])),
      );
      expect(await rowsNaming(posts.db, erased)).toEqual([]);
      await model.expectWithout(erased);
      expect(refusedAfter.filter((done) => done)).toEqual([]);
      await expectTold(told);
      expect(await calibrated()).toMatchObject({ corrected: 0, overdue: 0 });
    },
  );

  // PGlite has one connection: there nothing runs beside a statement.
  (name === "PostgreSQL" ? test : test.skip)(
    "a write that began before the mark is waited for, and what it wrote goes, too",
    async () => {
      const other = await asAnotherProcess(posts.db);
      await post(posts);
      let end = (): void => undefined;
      const ended = new Promise<void>((resolve) => {
        end = resolve;
      });
      // It holds the key: the statement that creates the drop has its snapshot, and waits.
      const holding = other
        .transaction(async ({ query }) => {
          await query("INSERT INTO posts.idempotency VALUES ('eve', 'k', gen_random_uuid(), 1)");
          await ended;
          throw new Error("rolled back");
        })
        .catch(() => undefined);
      const waits = () => posts.db.query("SELECT FROM pg_locks WHERE NOT granted");
      await eventually(
        async () => (await other.query("SELECT FROM pg_locks WHERE locktype = 'transactionid'")).length > 0,
        "it holds the key",
      );
      const creating = post(posts, { user_id: "eve", idempotency_key: "k" });
      await eventually(async () => (await waits()).length > 0, "the creation waits");
      const relay = startRelayOf(posts.db);
      let looks = 0;
      const query = ((text, ...more) => {
        if (/pg_locks/.test(text)) looks += 1;
        return posts.db.query(text, ...more);
      }) as typeof posts.db.query;
      const forgetting = forget(createPostsStore({ ...posts.db, query }), "eve");
      await eventually(() => looks > 3, "the erasure looks again and again whether the creation has ended");
      expect((await posts.store.erased.among(["eve"])).size).toBe(1);
      end();
      const id = await creating;
      await Promise.all([holding, forgetting]);
      await relay.close();
      expect(await rowsNaming(posts.db, "eve")).toEqual([]);
      expect((await posts.call.getDrop({ drop_id: id })).tombstone?.id).toBe(id);
      expect(await refusal(post(posts, { user_id: "eve", idempotency_key: "k" }))).toMatch(
        /^FAILED_PRECONDITION user_id/,
      );
      await other.close();
    },
  );

  longTest(name)(
    "10,000 drops, 10,000 likes and 10,000 reposts go without reading all for each of them",
    async () => {
      const { db, call } = posts;
      const original = await post(posts, { user_id: "eve" });
      const others = await post(posts, { user_id: "bob" });
      const { drop } = await call.getDrop({ drop_id: original });
      await storeReposts(posts, drop as NonNullable<typeof drop>, 10_000);
      // They are of the same millisecond as the first one.
      const insert = (author: string, group: string) =>
        db.query(
          `INSERT INTO posts.drops (drop_id, user_id, visibility, recipients, reply_to, summary, body, updated_at, changed_at)
         SELECT (left($1, 19) || $2 || lpad(to_hex(n), 12, '0'))::uuid, $3, 1, '{}', CASE WHEN n % 2 = 0 THEN $4 END, '', 'x', 0, 0
         FROM generate_series(1, 10000) n`,
          [original, group, author, others],
        );
      await insert("eve", "a00a-");
      await insert("bob", "a00b-");
      await db.query(
        `INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, counted, changed_at)
       SELECT drop_id, 'like', 'eve', true, 1, true, 0 FROM posts.drops WHERE user_id = 'bob' AND drop_id <> $1
       UNION ALL SELECT $1, 'reply', drop_id::text, true, 1, true, 0 FROM posts.drops WHERE user_id = 'eve' AND reply_to = $1::text`,
        [others],
      );
      await db.query(
        `INSERT INTO posts.counts SELECT drop_id, 1, 0, 0 FROM posts.drops WHERE user_id = 'bob' AND drop_id <> $1
       UNION ALL SELECT $1, 0, 0, 5000`,
        [others],
      );
      const relay = startRelayOf(db);
      let rows = 0;
      const counted = countingRows(db, ({ read, written }) => {
        rows += read + written;
      });
      await forget(createPostsStore(counted), "eve");
      const told = await relay.close();
      // A look at all for each of them would read 100 million.
      expect(rows).toBeLessThan(10_000_000);
      expect(told.filter(({ subject }) => subject === "drops.deleted")).toHaveLength(20_001);
      expect(await rowsNaming(db, "eve")).toEqual([]);
      expect(await db.query("SELECT FROM posts.counts WHERE likes + shares + replies > 0")).toEqual([]);
      expect(await db.query("SELECT FROM posts.reactions")).toEqual([]);
      expect(await calibrated()).toMatchObject({ corrected: 0 });
    },
    120_000,
  );
});
