import { Visibility } from "../../gen/avion/posts.js";
import { chunked, mapLimited } from "../../kernel/concurrency.js";
import { DAY } from "../../kernel/time.js";
import type { DropDraft, Pair, People } from "./people.grpc.js";

/** Has so many followers that their drops are written in chunks. */
export const BIG_AUTHOR = "nova";

export interface SeedOptions {
  readonly seed?: number;
  readonly users?: number;
  readonly bigAuthorFollowers: number;
  /** The end of the history, ms since the epoch. */
  readonly now: number;
}

interface SeedPlan {
  readonly people: readonly string[];
  readonly drops: readonly Required<DropDraft>[];
  readonly follows: readonly Pair[];
}

const NAMES =
  "ada grace alan edsger barbara donald margaret linus radia ken dennis bjarne frances tim jean kathleen leslie shafi tony niklaus hedy katherine dorothy mary annie evelyn joan adele lynn sophie karen anita carol ruth stephanie vint claude george john kurt alonzo emmy sofia henri leonhard carl blaise gottfried isaac johannes tycho galileo rosalind marie lise chien vera cecilia jocelyn maria".split(
    " ",
  );

const DROP_DAYS = 30;

/**
 * Plans a world: users whose followers follow Zipf's law, one author with very many, and a month of drops. The same
 * options make the same plan.
 */
export function planWorld({ seed = 1, users = 200, bigAuthorFollowers, now }: SeedOptions): SeedPlan {
  const random = mulberry32(seed);
  const people = userIds(users);
  return {
    people,
    follows: [...graph(people, random), ...followersOfBigAuthor(people, bigAuthorFollowers)],
    drops: drafts(people, random, now).sort((a, b) => a.created_at - b.created_at),
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
  people: Pick<People, "introduce" | "post" | "followMany">,
  plan: SeedPlan,
  onProgress: (what: string, done: number, total: number) => void,
): Promise<void> {
  const each = async <T>(what: string, items: readonly T[], work: (item: T) => Promise<unknown>): Promise<void> => {
    let done = 0;
    await mapLimited(items, AT_ONCE, async (item) => {
      await work(item);
      done += 1;
      onProgress(what, done, items.length);
    });
  };
  await each("people", plan.people, (person) => people.introduce(person, displayName(person)));
  await each("drops", plan.drops, (draft) => people.post(draft));
  let followed = 0;
  for (const pairs of chunked(plan.follows, FOLLOWS_A_CALL)) {
    await people.followMany(pairs);
    followed += pairs.length;
    onProgress("follows", followed, plan.follows.length);
  }
}

const displayName = (id: string): string => `${id.charAt(0).toUpperCase()}${id.slice(1)}`;

function userIds(count: number): string[] {
  const ids = [...NAMES.slice(0, Math.max(0, count - 1)), BIG_AUTHOR];
  for (let index = ids.length + 1; ids.length < count; index++) ids.push(`user-${String(index).padStart(4, "0")}`);
  return ids;
}

function graph(people: readonly string[], random: Random): Pair[] {
  const popular = zipf(random, people.length);
  return people.flatMap((follower_id) => {
    const wanted = 3 + Math.min(popular(), 20);
    const chosen = new Set<string>();
    for (let draw = 0; draw < wanted; draw++) chosen.add(people[popular()] as string);
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

function drafts(people: readonly string[], random: Random, now: number): Required<DropDraft>[] {
  const loud = zipf(random, people.length);
  return Array.from({ length: people.length * 4 }, (_, drop) => {
    // Few of the big author: each goes to all their followers.
    const user_id = drop % 40 === 0 ? BIG_AUTHOR : (people[loud()] as string);
    const created_at = now - 1 - Math.floor(random() ** 2 * DROP_DAYS * DAY);
    const visibility = pickVisibility(random());
    const recipients = visibility === Visibility.DIRECT ? [people[Math.floor(random() * people.length)] as string] : [];
    return { user_id, visibility, recipients, created_at, body: `Note ${drop + 1}` };
  });
}

function pickVisibility(share: number): Visibility {
  if (share < 0.8) return Visibility.PUBLIC;
  if (share < 0.88) return Visibility.UNLISTED;
  return share < 0.97 ? Visibility.FOLLOWERS : Visibility.DIRECT;
}

type Random = () => number;

/**
 * Mulberry32 by Tommy Ettinger (2017, public domain), in the JavaScript form published by bryc: 32 bits of state,
 * enough for a world to play with and for nothing secret.
 */
export function mulberry32(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Draws ranks 0..size-1 with probability proportional to 1 / (rank + 1) (Zipf). */
function zipf(random: Random, size: number): () => number {
  const cumulative: number[] = [];
  let sum = 0;
  for (let rank = 1; rank <= size; rank++) {
    sum += 1 / rank;
    cumulative.push(sum);
  }
  return () => {
    const target = random() * sum;
    let low = 0;
    let high = size - 1;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((cumulative[middle] as number) <= target) low = middle + 1;
      else high = middle;
    }
    return low;
  };
}
