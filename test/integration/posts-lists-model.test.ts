import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { describePostsWithUsers } from "../support/describe-posts-with-users.js";
import { post } from "../support/posts.js";
import type { World } from "../support/world.js";

const { PUBLIC, UNLISTED, FOLLOWERS, DIRECT } = Visibility;

const PARENT = "https://far.example/notes/1";
const PEOPLE = ["a", "b", "c"] as const;
type Person = (typeof PEOPLE)[number];
type Edge = readonly [from: Person, to: Person];

interface PlannedDrop {
  readonly author: Person;
  readonly visibility: Visibility;
  readonly recipient: Person;
  readonly isReply: boolean;
  readonly isDeleted: boolean;
  readonly likedBy: readonly Person[];
  readonly sharedBy: readonly Person[];
}

interface Plan {
  readonly drops: readonly PlannedDrop[];
  readonly follows: readonly Edge[];
  readonly blocks: readonly Edge[];
  readonly mutes: readonly Edge[];
  readonly size: number;
}

const person = fc.constantFrom(...PEOPLE);
const edges = fc
  .array(fc.tuple(person, person), { maxLength: 3 })
  .map((all) => all.filter(([from, to]) => from !== to));
const plans: fc.Arbitrary<Plan> = fc.record({
  drops: fc.array(
    fc.record({
      author: person,
      visibility: fc.constantFrom(PUBLIC, UNLISTED, FOLLOWERS, DIRECT),
      recipient: person,
      isReply: fc.boolean(),
      isDeleted: fc.nat(4).map((n) => n === 0),
      likedBy: fc.subarray([...PEOPLE]),
      sharedBy: fc.subarray([...PEOPLE]),
    }),
    { maxLength: 12 },
  ),
  ...{ follows: edges, blocks: edges, mutes: edges, size: fc.integer({ min: 1, max: 4 }) },
});

interface Made extends PlannedDrop {
  readonly id: string;
  /** Of a repost. */
  readonly original?: Made;
}

const mayShare = (sharer: Person, { author, visibility }: PlannedDrop): boolean =>
  visibility === PUBLIC || visibility === UNLISTED || (visibility === FOLLOWERS && sharer === author);

/**
 * The model: a drop is shown to its audience, and never between two of whom one blocks the other; a repost where its
 * original is shown, too.
 */
function modelOf({ follows, blocks, mutes }: Plan) {
  const has = (all: readonly Edge[], one: string, other: string) =>
    all.some(([from, to]) => from === one && to === other);
  const blocked = (one: string, other: string) => has(blocks, one, other) || has(blocks, other, one);
  const sees = (viewer: string, { author, visibility, recipient, original }: Omit<Made, "id">): boolean => {
    if (original !== undefined && !sees(viewer, original)) return false;
    if (viewer === author) return true;
    if (viewer !== "" && blocked(viewer, author)) return false;
    if (visibility === FOLLOWERS) return has(follows, viewer, author) && !blocked(viewer, author);
    return visibility !== DIRECT || viewer === recipient;
  };
  const hides = (viewer: string, other: string) =>
    viewer !== other && (blocked(viewer, other) || has(mutes, viewer, other));
  return { blocked, sees, hides };
}

const FLAGS = [
  [true, true],
  [true, false],
  [false, true],
  [false, false],
] as const;

const idsOf = (drops: readonly Made[]): string[] => drops.map(({ id }) => id).toSorted();

/** The name has the original of a repost. */
const named = (id: string, original = ""): string => `${id} ${original}`;

/** Reads a list to its end: each page but the last is full. */
async function whole(
  size: number,
  read: (page_token: string) => Promise<{ readonly ids: string[]; readonly next: string }>,
): Promise<string[]> {
  const found: string[] = [];
  for (let token = ""; ; ) {
    const { ids, next } = await read(token);
    found.push(...ids);
    if (next === "") return found;
    expect(ids).toHaveLength(size);
    token = next;
  }
}

describePostsWithUsers("lists of posts, compared with a model", (running) => {
  let plansMade = 0;

  const arrange = (world: World, { follows, blocks, mutes }: Plan, nameOf: (one: Person) => string): void => {
    const each = (all: readonly Edge[], apply: (from: string, to: string) => unknown) => {
      for (const [from, to] of all) apply(nameOf(from), nameOf(to));
    };
    each(follows, (from, to) => world.follow(from, to));
    each(blocks, (from, to) => world.block(from, to));
    each(mutes, (from, to) => world.mute(from, to));
  };

  const make = async ({ drops }: Plan, nameOf: (one: Person) => string): Promise<Made[]> => {
    const made: Made[] = [];
    for (const drop of drops) {
      const id = await post(running.posts, {
        user_id: nameOf(drop.author),
        visibility: drop.visibility,
        recipients: drop.visibility === DIRECT ? [nameOf(drop.recipient)] : [],
        reply_to: drop.isReply ? PARENT : "",
      });
      made.push({ ...drop, id });
    }
    // The likes are made before the blocks: they stay.
    for (const { id, likedBy } of made)
      for (const one of likedBy) await running.posts.call.likeDrop({ drop_id: id, user_id: nameOf(one) });
    const reposts: Made[] = [];
    for (const original of made)
      for (const author of original.sharedBy.filter((one) => mayShare(one, original))) {
        const shared = await running.posts.call.shareDrop({ drop_id: original.id, user_id: nameOf(author) });
        const of = { author, original, isReply: false, likedBy: [], sharedBy: [] };
        reposts.push({ ...original, ...of, id: shared.repost_id });
      }
    for (const { id, author, isDeleted } of made)
      if (isDeleted) await running.posts.call.deleteDrop({ drop_id: id, user_id: nameOf(author) });
    return [...made, ...reposts];
  };

  test("users' drops and likes, and the likes of drops, are those of the model, page by page", async () => {
    const { call } = running.posts;
    await call.putRemoteObject({ uri: PARENT, kind: RemoteKind.DROP, document: "{}", visibility: PUBLIC });
    await fc.assert(
      fc.asyncProperty(plans, async (plan) => {
        const suffix = ++plansMade;
        const nameOf = (one: string): string => (one === "" ? "" : `${one}-${suffix}`);
        const made = await make(plan, nameOf);
        arrange(running.world, plan, nameOf);
        const { blocked, sees, hides } = modelOf(plan);
        const newest = made.filter(({ isDeleted }) => !isDeleted).reverse();
        for (const viewer of ["", ...PEOPLE]) {
          const asked = { viewer_id: nameOf(viewer), page_size: plan.size };
          for (const user of PEOPLE) {
            const isClosed = viewer !== "" && blocked(viewer, user);
            const seen = isClosed ? [] : newest.filter((drop) => sees(viewer, drop));
            const user_id = nameOf(user);
            for (const [replies, reposts] of FLAGS) {
              const listed = await whole(plan.size, async (page_token) => {
                const page = await call.listUserDrops({ ...asked, user_id, replies, reposts, page_token });
                const ids = page.drops.map((drop) => named(drop.drop_id, drop.original?.drop_id));
                return { ids, next: page.next_page_token };
              });
              const expected = seen.filter(
                ({ author, isReply, original }) =>
                  author === user && (replies || !isReply) && (reposts || original === undefined),
              );
              expect(listed).toEqual(expected.map(({ id, original }) => named(id, original?.id)));
            }
            const liked = await whole(plan.size, async (page_token) => {
              const page = await call.listUserLikes({ ...asked, user_id, page_token });
              return { ids: page.likes.map(({ drop_id }) => drop_id), next: page.next_page_token };
            });
            const shared = await whole(plan.size, async (page_token) => {
              const page = await call.listUserShares({ ...asked, user_id, page_token });
              return { ids: page.shares.map(({ drop_id }) => drop_id), next: page.next_page_token };
            });
            expect(liked.toSorted()).toEqual(idsOf(seen.filter(({ likedBy }) => likedBy.includes(user))));
            const isShared = (drop: Made) => drop.sharedBy.includes(user) && mayShare(user, drop);
            expect(shared.toSorted()).toEqual(idsOf(seen.filter(isShared)));
          }
          const drop_ids = made.map(({ id }) => id);
          const { results } = await call.getDrops({ drop_ids, viewer_id: nameOf(viewer) });
          if (viewer !== "")
            expect(results.flatMap(({ drop }) => drop?.drop_id ?? []).toSorted()).toEqual(
              idsOf(newest.filter((drop) => sees(viewer, drop))),
            );
          for (const drop of newest.filter((one) => viewer !== "" && sees(viewer, one))) {
            const likers = await whole(plan.size, async (page_token) => {
              const page = await call.listLikes({ ...asked, drop_id: drop.id, page_token });
              return { ids: page.likes.map(({ user_id }) => user_id), next: page.next_page_token };
            });
            expect(likers.toSorted()).toEqual(
              drop.likedBy
                .filter((one) => !hides(viewer, one))
                .map(nameOf)
                .toSorted(),
            );
          }
        }
      }),
      { numRuns: 12 },
    );
  });
});
