import { v7 } from "uuid";
import type { DropVisibility } from "./drops.js";
import { integer, mulberry32, type Random, zipf } from "./random.js";
import type { DropDraft, World } from "./world.js";

/** The author with so many followers that fan-out shows. */
export const BIG_AUTHOR = "nova";

export interface SeedOptions {
  readonly seed?: number;
  readonly users?: number;
  /** How many of the followers of {@link BIG_AUTHOR} there are. */
  readonly bigAuthorFollowers?: number;
  /** The end of the history; with the seed it decides every id and time. */
  readonly now?: number;
  readonly onProgress?: (progress: SeedProgress) => void;
}

export interface SeedProgress {
  readonly done: number;
  readonly total: number;
}

/** What was made. */
export interface SeedSummary {
  readonly users: number;
  readonly edges: number;
  readonly drops: number;
}

type Step = { readonly at: number; readonly run: () => void };

const NAMES =
  "ada grace alan edsger barbara donald margaret linus radia ken dennis bjarne frances tim jean kathleen leslie shafi tony niklaus hedy katherine dorothy mary annie evelyn joan adele lynn sophie karen anita carol ruth stephanie vint claude george john kurt alonzo emmy sofia henri leonhard carl blaise gottfried isaac johannes tycho galileo rosalind marie lise chien vera cecilia jocelyn maria".split(
    " ",
  );

const DAY_MS = 86_400_000;
const EDGE_DAYS = 90;
const DROP_DAYS = 30;
const REPORT_EVERY = 1_000;

/**
 * Fills a world: named users and numbered ones, who are followed the more the
 * earlier they stand (Zipf), one author with very many followers, and a month
 * of drops. The same seed and now make the same world.
 */
export function seedWorld(world: World, options: SeedOptions = {}): SeedSummary {
  const { seed = 1, users = 300, bigAuthorFollowers = 20_000, now = world.now(), onProgress } = options;
  const random = mulberry32(seed);
  const people = userIds(users);
  for (const person of people) world.addUser(person);
  const counts = { edges: 0, drops: 0 };
  const follow = (follower: string, following: string): Step => {
    const at = now - 1 - integer(random, EDGE_DAYS * DAY_MS);
    const run = (): void => {
      if (world.follow(follower, following, at) !== undefined) counts.edges += 1;
    };
    return { at, run };
  };
  const steps = [
    ...graphSteps(people, random, follow),
    ...bigAuthorSteps({ people, count: bigAuthorFollowers, follow }),
    ...draftDrops(people, random, now).map((draft) => {
      const run = (): void => {
        world.addDrop(draft);
        counts.drops += 1;
      };
      return { at: draft.created_at, run };
    }),
  ];
  // In the order of time, as it would have happened: lists then grow at their end.
  steps.sort((a, b) => a.at - b.at);
  steps.forEach((step, done) => {
    step.run();
    if (done % REPORT_EVERY === 0) onProgress?.({ done, total: steps.length });
  });
  onProgress?.({ done: steps.length, total: steps.length });
  return { users: world.size.users, ...counts };
}

function userIds(count: number): string[] {
  const ids = [...NAMES.slice(0, Math.max(0, count - 1)), BIG_AUTHOR];
  for (let index = ids.length + 1; ids.length < count; index++) ids.push(`user-${String(index).padStart(4, "0")}`);
  return ids;
}

function graphSteps(people: readonly string[], random: Random, follow: (a: string, b: string) => Step): Step[] {
  const popular = zipf(random, people.length);
  const steps: Step[] = [];
  for (const follower of people) {
    // Most follow a few, some follow many.
    const wanted = 3 + Math.min(popular(), 60);
    const chosen = new Set<string>();
    for (let draw = 0; draw < wanted; draw++) chosen.add(people[popular()] as string);
    chosen.delete(follower);
    chosen.delete(BIG_AUTHOR);
    for (const following of chosen) steps.push(follow(follower, following));
  }
  return steps;
}

interface BigAuthor {
  readonly people: readonly string[];
  readonly count: number;
  readonly follow: (follower: string, following: string) => Step;
}

function bigAuthorSteps({ people, count, follow }: BigAuthor): Step[] {
  const followers = people.filter((person) => person !== BIG_AUTHOR).slice(0, Math.min(count, 50));
  for (let fan = 1; followers.length < count; fan++) followers.push(`fan-${String(fan).padStart(5, "0")}`);
  return followers.map((follower) => follow(follower, BIG_AUTHOR));
}

function draftDrops(people: readonly string[], random: Random, now: number): (DropDraft & { created_at: number })[] {
  const loud = zipf(random, people.length);
  const count = people.length * 8;
  const drafts: (DropDraft & { created_at: number })[] = [];
  for (let drop = 0; drop < count; drop++) {
    // Every sixth is the big author's, so that the first page has one.
    const user_id = drop % 6 === 0 ? BIG_AUTHOR : (people[loud()] as string);
    const created_at = now - 1 - Math.floor(random() ** 2 * DROP_DAYS * DAY_MS);
    const visibility = pickVisibility(random());
    const recipients = visibility === "direct" ? [people[integer(random, people.length)] as string] : [];
    const bytes = Uint8Array.from({ length: 16 }, () => integer(random, 256));
    const drop_id = v7({ msecs: created_at, random: bytes });
    drafts.push({ user_id, visibility, recipients, created_at, changed_at: created_at, drop_id });
  }
  return drafts;
}

function pickVisibility(share: number): DropVisibility {
  if (share < 0.8) return "public";
  if (share < 0.88) return "unlisted";
  return share < 0.97 ? "followers" : "direct";
}
