import { createHash } from "node:crypto";
import { Visibility } from "../../gen/avion/posts.js";
import { chunked, mapLimited } from "../../kernel/concurrency.js";
import { DAY } from "../../kernel/time.js";
import { type World, whileBusy } from "./world.grpc.js";

/** Author with enough followers that drops are written in chunks. */
export const BIG_AUTHOR = "nova";

/** Approves followers. */
export const LOCKED_AUTHOR = "lena";

/** Is suspended, with followers and drops. */
export const SUSPENDED_AUTHOR = "mallory";

export interface SeedOptions {
  readonly seed?: number;
  readonly users?: number;
  readonly bigAuthorFollowers: number;
  /** The history ends here, in ms since the epoch. */
  readonly now: number;
}

interface Pair {
  readonly follower_id: string;
  readonly following_id: string;
}

type Draft = ReturnType<typeof draft>;

interface Reaction {
  readonly user_id: string;
  readonly drop: Draft;
  readonly kind: "like" | "share";
}

interface SeedPlan {
  readonly people: readonly string[];
  readonly drops: readonly Draft[];
  readonly reactions: readonly Reaction[];
  readonly follows: readonly Pair[];
}

const NAMES =
  "ada grace alan edsger barbara donald margaret linus radia ken dennis bjarne frances tim jean kathleen leslie shafi tony niklaus hedy katherine dorothy mary annie evelyn joan adele lynn sophie karen anita carol ruth stephanie vint claude george john kurt alonzo emmy sofia henri leonhard carl blaise gottfried isaac johannes tycho galileo rosalind marie lise chien vera cecilia jocelyn maria".split(
    " ",
  );

const DROPS_A_USER = 3;
const REACTIONS_A_USER = 2;
const DROP_DAYS = 30;

/**
 * Plans a world: users whose followers follow Zipf's law, one author with very many, a month of drops, and reactions to them. The same
 * options make the same plan.
 */
export function planWorld({ seed = 2, users = 60, bigAuthorFollowers, now }: SeedOptions): SeedPlan {
  const random = randomOf(seed);
  const people = userIds(users);
  const drops = Array.from({ length: users * DROPS_A_USER }, (_, index) => draft(people, random, { index, now }));
  const open = drops.filter(({ visibility }) => visibility === Visibility.PUBLIC);
  return {
    people,
    reactions: people.flatMap((user_id) =>
      Array.from({ length: REACTIONS_A_USER }, (_, index): Reaction => {
        const drop = open[zipf(random, open.length)] as Draft;
        return { user_id, drop, kind: index % REACTIONS_A_USER === 0 ? "like" : "share" };
      }),
    ),
    follows: [...graph(people, random), ...followersOfBigAuthor(people, bigAuthorFollowers)],
    drops: drops.sort((a, b) => a.created_at - b.created_at),
  };
}

const AT_ONCE = 16;
const FOLLOWS_A_CALL = 1_000;

/**
 * Carries out a plan by the public API. Drops come before follows, so that they notify no user.
 *
 * @param onProgress called with the kind of items, how many are done, and their total
 */
export async function seedWorld(
  {
    users,
    posts,
  }: {
    users: Pick<World["users"], "setProfile" | "followMany">;
    posts: Pick<World["posts"], "createDrop" | "likeDrop" | "shareDrop">;
  },
  plan: SeedPlan,
  onProgress: (what: string, done: number, total: number) => void,
): Promise<void> {
  const each = async <T>(
    what: string,
    pieces: readonly (readonly T[])[],
    work: (piece: readonly T[]) => Promise<unknown>,
  ): Promise<void> => {
    const total = pieces.flat().length;
    let done = 0;
    await mapLimited(pieces, AT_ONCE, async (piece) => {
      await whileBusy(() => work(piece));
      done += piece.length;
      onProgress(what, done, total);
    });
  };
  await each("users", chunked(plan.people, 1), ([user_id = ""]) =>
    users.setProfile({ user_id, display_name: `${user_id.charAt(0).toUpperCase()}${user_id.slice(1)}` }),
  );
  await each("drops", chunked(plan.drops, 1), async ([drop]) => {
    const { drop_id = "" } = (await posts.createDrop({ ...drop, idempotency_key: drop?.body ?? "" })).drop ?? {};
    for (const { user_id, kind } of plan.reactions.filter((reaction) => reaction.drop === drop))
      await (kind === "like" ? posts.likeDrop({ drop_id, user_id }) : posts.shareDrop({ drop_id, user_id }));
  });
  await each("follows", chunked(plan.follows, FOLLOWS_A_CALL), (follows) =>
    users.followMany({ follows: [...follows] }),
  );
}

function userIds(count: number): string[] {
  const ids = [...NAMES.slice(0, Math.max(0, count - 1)), BIG_AUTHOR];
  for (let index = ids.length + 1; ids.length < count; index++) ids.push(`user-${String(index).padStart(4, "0")}`);
  return ids;
}

function graph(people: readonly string[], random: Random): Pair[] {
  return people.flatMap((follower_id) => {
    const wanted = 4 + Math.min(zipf(random, people.length), 16);
    const chosen = new Set(Array.from({ length: wanted }, () => people[zipf(random, people.length)] as string));
    chosen.delete(follower_id);
    chosen.delete(BIG_AUTHOR);
    return [...chosen].map((following_id) => ({ follower_id, following_id }));
  });
}

function followersOfBigAuthor(people: readonly string[], count: number): Pair[] {
  const followers = people.filter((person) => person !== BIG_AUTHOR).slice(0, Math.min(count, 50));
  for (let fan = 1; followers.length < count; fan++) followers.push(`fan-${String(fan).padStart(5, "0")}`);
  return followers.map((follower_id) => ({ follower_id, following_id: BIG_AUTHOR }));
}

function draft(people: readonly string[], random: Random, { index, now }: { index: number; now: number }) {
  // The big author posts few drops, since each goes to all their followers.
  const user_id = index % 40 === 0 ? BIG_AUTHOR : (people[zipf(random, people.length)] as string);
  const created_at = now - 1 - Math.floor(random() ** 2 * DROP_DAYS * DAY);
  const visibility = pickVisibility(random());
  const recipients = visibility === Visibility.DIRECT ? [people[Math.floor(random() * people.length)] as string] : [];
  return { user_id, visibility, recipients, created_at, body: `Note ${index + 1}` };
}

function pickVisibility(share: number): Visibility {
  if (share < 0.8) return Visibility.PUBLIC;
  if (share < 0.88) return Visibility.UNLISTED;
  return share < 0.97 ? Visibility.FOLLOWERS : Visibility.DIRECT;
}

/** Numbers are evenly distributed in [0, 1). */
type Random = () => number;

function randomOf(seed: number): Random {
  let draws = 0;
  return () => createHash("sha256").update(`${seed}:${draws++}`).digest().readUInt32BE() / 2 ** 32;
}

/** Returns a rank 0..size-1 with a probability of nearly 1 / (rank + 1) (Zipf). */
const zipf = (random: Random, size: number): number => Math.floor((size + 1) ** random()) - 1;
