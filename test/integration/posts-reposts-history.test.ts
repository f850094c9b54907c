import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { describePosts } from "../support/describe-posts.js";
import { post } from "../support/posts.js";
import { repostsIn } from "../support/reposts.js";
import { runs } from "../support/suite.js";

const USERS = ["ada", "bob", "eve"];
const ORIGINALS = 2;

const users = fc.constantFrom(...USERS);
const originals = fc.nat({ max: ORIGINALS - 1 });
/** `via` names the drop by the repost of that user, where there is one. */
const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("share"), user: users, of: originals, via: users }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("unshare"), user: users, of: originals, via: users }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("remove"), user: users, of: originals, via: users }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("delete"), user: users, of: originals, via: users }) },
);
type Step = Readonly<{ kind: string; user: string; of: number; via: string }>;

describePosts("histories of reposts", { emptied: true }, (posts, { name }) => {
  const numRuns = (runs.slow ? 5 : 1) * (name === "PGlite" ? 8 : 25);
  const counted = async (drop_ids: string[]) => {
    await posts.countAll();
    return (await posts.call.getCounts({ drop_ids })).counts.map(({ shares }) => shares);
  };
  const newOriginals = () => Promise.all(Array.from({ length: ORIGINALS }, () => post(posts)));
  const ofThese = (names: readonly string[], ids: readonly string[]) =>
    names.filter((one) => ids.some((id) => one.startsWith(id)));

  test("after any history the counts, the reposts and the events are those of who shares what", async () => {
    const property = fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
      const ids = await newOriginals();
      /** The model: the repost of each user, by original; a deleted original has none. */
      const model = ids.map(() => new Map<string, string>());
      const deleted = new Set<number>();
      const run = async ({ kind, user, of, via }: Step): Promise<void> => {
        const reposts = model[of] as Map<string, string>;
        const original = ids[of] as string;
        const drop_id = reposts.get(via) ?? original;
        const isGone = deleted.has(of);
        if (kind === "share") {
          const sharing = posts.call.shareDrop({ drop_id, user_id: user });
          if (isGone) {
            await expect(sharing).rejects.toThrow("the drop is deleted");
            return;
          }
          const { changed, repost_id } = await sharing;
          expect(changed).toBe(!reposts.has(user));
          if (!changed) expect(repost_id).toBe(reposts.get(user));
          reposts.set(user, repost_id);
        } else if (kind === "unshare") {
          const { changed } = await posts.call.unshareDrop({ drop_id, user_id: user });
          expect(changed).toBe(reposts.delete(user));
        } else if (kind === "remove") {
          const repost = reposts.get(user);
          if (repost !== undefined) await posts.call.deleteDrop({ drop_id: repost, user_id: user });
          reposts.delete(user);
        } else {
          await posts.call.deleteDrop({ drop_id: original, user_id: "ada" });
          deleted.add(of);
          reposts.clear();
        }
      };
      for (const one of steps) await run(one);
      const expected = model.flatMap((reposts, of) =>
        [...reposts].map(([user, repost]) => `${ids[of]} ${user} ${repost}`),
      );
      const { shares, live, mistold } = await repostsIn(posts);
      expect(ofThese(live, ids).sort()).toEqual(expected.sort());
      expect(ofThese(shares, ids).sort()).toEqual(expected.sort());
      expect(mistold).toEqual([]);
      expect(await counted(ids)).toEqual(model.map(({ size }) => size));
    });
    await fc.assert(property, { numRuns });
  }, 300_000);

  test("however calls meet, counts, reposts and events agree", async () => {
    const property = fc.asyncProperty(fc.array(fc.array(step, { maxLength: 8 }), { maxLength: 5 }), async (rounds) => {
      const ids = await newOriginals();
      const known = new Map<string, string>();
      const run = async ({ kind, user, of, via }: Step): Promise<void> => {
        const original = ids[of] as string;
        const drop_id = known.get(`${of} ${via}`) ?? original;
        if (kind === "share") {
          const { repost_id } = await posts.call.shareDrop({ drop_id, user_id: user });
          expect(repost_id).not.toBe("");
          known.set(`${of} ${user}`, repost_id);
        }
        if (kind === "unshare") await posts.call.unshareDrop({ drop_id, user_id: user });
        const own = known.get(`${of} ${user}`);
        if (kind === "remove" && own !== undefined) await posts.call.deleteDrop({ drop_id: own, user_id: user });
        if (kind === "delete") await posts.call.deleteDrop({ drop_id: original, user_id: "ada" });
      };
      for (const steps of rounds) {
        const outcomes = await Promise.allSettled(steps.map(run));
        const faults = outcomes.flatMap((one) => (one.status === "rejected" ? [String(one.reason)] : []));
        // What is deleted already cannot be shared, by its repost neither.
        expect(faults.filter((one) => !/the drop is deleted|NOT_FOUND/.test(one))).toEqual([]);
        const { shares, live, mistold } = await repostsIn(posts);
        expect(ofThese(shares, ids)).toEqual(ofThese(live, ids));
        expect(mistold).toEqual([]);
        const sizes = ids.map((id) => ofThese(live, [id]).length);
        expect(await counted(ids)).toEqual(sizes);
      }
    });
    await fc.assert(property, { numRuns });
  }, 300_000);
});
