import { type ServiceError, status } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { RemoteKind, RemoteReactionKind, type Reply, Visibility } from "../../src/gen/avion/posts.js";
import { silent } from "../../src/kernel/logger.js";
import { createCalibration } from "../../src/posts/maintenance.js";
import { linkDrops } from "../../src/posts/remote/links.js";
import { linkReactions } from "../../src/posts/remote/reaction-links.js";
import { describePosts } from "../support/describe-posts.js";
import { post } from "../support/posts.js";
import { repostsIn } from "../support/reposts.js";
import { runs } from "../support/suite.js";

const { LIKE, SHARE } = RemoteReactionKind;
const { PUBLIC, UNLISTED, FOLLOWERS } = Visibility;

const DROPS = 3;
const REACTIONS = 4;
const ACTORS = ["https://far.example/users/eve", "https://far.example/users/mal"];

/** What the objects of one history are, whatever happens to them. The object 0 is a drop of this server. */
const world = fc.record({
  drops: fc.array(
    fc.record({ replyTo: fc.nat({ max: DROPS }), visibility: fc.constantFrom(PUBLIC, PUBLIC, UNLISTED, FOLLOWERS) }),
    { minLength: DROPS, maxLength: DROPS },
  ),
  // Of two reactions of one actor to one drop an undo takes both.
  reactions: fc.uniqueArray(
    fc.record({
      actor: fc.constantFrom(...ACTORS),
      object: fc.nat({ max: DROPS }),
      kind: fc.constantFrom(LIKE, SHARE),
    }),
    { minLength: REACTIONS, maxLength: REACTIONS, selector: (one) => JSON.stringify(one) },
  ),
});

const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("put"), of: fc.nat({ max: DROPS - 1 }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("delete"), of: fc.nat({ max: DROPS - 1 }) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("react"), of: fc.nat({ max: REACTIONS - 1 }) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("withdraw"), of: fc.nat({ max: REACTIONS - 1 }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("like"), of: fc.nat({ max: DROPS }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("share"), of: fc.nat({ max: DROPS }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("reply"), of: fc.nat({ max: DROPS }) }) },
);
type Step = Readonly<{ kind: string; of: number }>;

const nameOf = ({ drop, remote }: Reply): string => drop?.drop_id ?? remote?.uri ?? "";

describePosts("histories of remote drops and reactions", { emptied: true }, (posts, { name }) => {
  const numRuns = (runs.slow ? 5 : 1) * (name === "PGlite" ? 20 : 60);
  let made = 0;

  const calibrated = () =>
    createCalibration({ drops: posts.store.reactions, lease: posts.store.lease, log: silent })(1_000);

  // Invariants 3 and 4.
  test("in whatever order drops, reactions and their deletions come, doubled or at once, counts and lists are right", async () => {
    const rounds = fc.array(fc.array(step, { maxLength: 6 }), { maxLength: 6 });
    const property = fc.asyncProperty(world, rounds, async ({ drops, reactions }, steps) => {
      const [run, began] = [++made, Date.now()];
      const objects = [await post(posts), ...drops.map((_, n) => `https://far.example/${run}/${n}`)];
      const uris = reactions.map((_, n) => `https://far.example/${run}/reactions/${n}`);
      const liked = new Set<string>();
      const shared = new Map<string, string>();
      const replies: (readonly [reply: string, parent: string])[] = [];
      const put = (n: number) => {
        const { replyTo = 0, visibility = PUBLIC } = drops[n] ?? {};
        const [uri, reply_to] = [objects[n + 1] as string, objects[replyTo] as string];
        const object = { uri, kind: RemoteKind.DROP, actor_uri: ACTORS[0] as string, document: "{}", visibility };
        // A drop does not reply to itself.
        return posts.call.putRemoteObject({ ...object, reply_to: replyTo === n + 1 ? "" : reply_to });
      };
      const react = (n: number) => {
        const { actor: actor_uri = "", object = 0, kind = LIKE } = reactions[n] ?? {};
        const request = { uri: uris[n] as string, actor_uri, object: objects[object] as string, kind };
        return posts.call.putRemoteReaction({ ...request, created_at: began });
      };
      const does: Readonly<Record<string, (of: number) => Promise<unknown>>> = {
        put,
        react,
        delete: (n) => posts.call.deleteRemoteObject({ uri: objects[n + 1] as string }),
        withdraw: (n) =>
          posts.call.deleteRemoteReaction({ uri: uris[n] as string, actor_uri: reactions[n]?.actor ?? "" }),
        like: async (n) => {
          const drop_id = objects[n] as string;
          await posts.call.likeDrop({ drop_id, user_id: "bob" });
          liked.add(drop_id);
        },
        share: async (n) => {
          const drop_id = objects[n] as string;
          const { repost_id } = await posts.call.shareDrop({ drop_id, user_id: "bob" });
          shared.set(drop_id, repost_id);
        },
        reply: async (n) => {
          const reply_to = objects[n] as string;
          replies.push([await post(posts, { reply_to, user_id: "bob" }), reply_to]);
        },
      };
      const isStored = new Set<number>();
      const outcome = async ({ kind, of }: Step): Promise<void> => {
        try {
          await does[kind]?.(of);
          if (kind === "react") isStored.add(of);
        } catch (error) {
          const refused = [status.FAILED_PRECONDITION, status.NOT_FOUND, status.INVALID_ARGUMENT];
          if (!refused.includes((error as ServiceError).code)) throw error;
        }
      };
      for (const round of steps) await Promise.all(round.map(outcome));
      // A process may have ended before it linked: here the maintenance does what two that met have left.
      const links = { store: posts.store, now: Date.now };
      while ((await linkDrops(links, 100)) + (await linkReactions(links, 100)) > 0);
      await posts.countAll();

      const has = (kind: string, of: number) => steps.flat().some((one) => one.kind === kind && one.of === of);
      const isAlive = (n: number) => n === 0 || (has("put", n - 1) && !has("delete", n - 1));
      const counts = (await posts.call.getCounts({ drop_ids: objects })).counts;
      for (const [n, drop_id] of objects.entries()) {
        const alive = isAlive(n);
        const isPublic = n === 0 || drops[n - 1]?.visibility !== FOLLOWERS;
        const by = (kind: RemoteReactionKind) =>
          reactions.flatMap((one, at) => {
            const counts = one.object === n && one.kind === kind && isStored.has(at) && !has("withdraw", at);
            // An actor shares their own drops for followers, too.
            const mayBe = kind === LIKE || isPublic || one.actor === ACTORS[0];
            return counts && mayBe ? one.actor : [];
          });
        const likers = new Set([...by(LIKE), ...(liked.has(drop_id) ? ["bob"] : [])]);
        const sharers = new Set([...by(SHARE), ...(shared.has(drop_id) ? ["bob"] : [])]);
        const remote = drops.flatMap((one, at) => {
          const counts = one.replyTo === n && at + 1 !== n && isAlive(at + 1) && one.visibility !== FOLLOWERS;
          return counts ? (objects[at + 1] as string) : [];
        });
        const answers = [...remote, ...replies.flatMap(([reply, parent]) => (parent === drop_id ? reply : []))];
        const expected = alive ? [likers.size, sharers.size, answers.length] : [0, 0, 0];
        const { likes, shares, replies: replied } = counts[n] ?? {};
        expect([drop_id, likes, shares, replied]).toEqual([drop_id, ...expected]);
        if (!alive) continue;
        const { items } = await posts.call.listReplies({ drop_id, page_size: 100 });
        expect(items.map(nameOf).sort()).toEqual(answers.sort());
        const listed = await posts.call.listShares({ drop_id });
        expect(listed.shares.map(({ user_id }) => user_id).sort()).toEqual([...sharers].sort());
      }
      const { shares, live, mistold } = await repostsIn(posts);
      expect(shares).toEqual(live);
      expect(mistold).toEqual([]);
    });
    await fc.assert(property, { numRuns });
    expect(await calibrated()).toMatchObject({ corrected: 0, overdue: 0 });
  }, 300_000);
});
