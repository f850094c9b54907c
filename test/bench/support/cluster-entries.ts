import { mapLimited } from "../../../src/kernel/concurrency.js";
import { hiddenKey } from "../../../src/state/keys.js";
import { limited } from "../../support/limits.js";
import { homeKey } from "../../support/timeline-keys.js";
import type { World } from "../../support/world.js";
import type { Bench } from "./bench.js";
import { type Both, cpuOfUnit, endOfTurn, onBoth, type Side } from "./cluster-sides.js";
import { postDrops } from "./drops.js";
import { checkHomes, dropIds, fillKey, TTL_MS } from "./homes.js";
import { type Cpu, cpuInTurns } from "./measure.js";
import { check } from "./result.js";

const AT_ONCE = 64;
/** A batch holds so many drops for each message that a consumer handles at a time. */
const DROPS_A_BATCH = 4;
/** Trimming goes down to so much of a full home. */
const TRIMMED = 0.95;
/** The newest of a full home, which no trimming removes. */
const CHECKED = 0.9;

/** Authors who have so many followers each, and no follower in common. */
export interface Audience {
  readonly followers: number;
  readonly authors: number;
}

interface Posting {
  readonly audience: Audience;
  /** Of each author in a round; a turn has as many rounds as its time allows. */
  readonly posts: number;
}

export interface EntrySizes extends Posting {
  readonly entries: number;
  readonly turns: number | undefined;
}

const authorOf = ({ followers }: Audience, author: number): string => `writer-${followers}-${author}`;
const ofAll = <T>({ authors }: Audience, of: (author: number) => T): T[] =>
  Array.from({ length: authors }, (_, author) => of(author));

/** The author, then the followers. */
const usersOf = (audience: Audience, author: number): string[] => [
  authorOf(audience, author),
  ...Array.from({ length: audience.followers }, (_, n) => `home-${author * audience.followers + n}`),
];

export function addAudience(world: World, audience: Audience): void {
  ofAll(audience, (author) => {
    for (const follower of usersOf(audience, author).slice(1)) world.follow(follower, authorOf(audience, author));
  });
}

/**
 * Homes begin with as many entries as a trimmed one has, or one more, or two, and so on up to a full one: so each turn
 * trims as many homes as the others.
 */
export async function fillFull({ server, cluster }: Both<Side>, audiences: readonly Audience[], entries: number) {
  const users = new Set(audiences.flatMap((audience) => ofAll(audience, (author) => usersOf(audience, author)).flat()));
  const sizes = Math.max(1, Math.floor(entries * (1 - TRIMMED)));
  const newest = Date.now() - 60_000;
  const copies: Buffer[] = [];
  for (let size = 0; size < sizes; size++) {
    await fillKey(server.redis, "copied", { entries: entries - size, newest });
    copies.push(await server.redis.dumpBuffer("copied"));
  }
  await server.redis.del("copied");
  for (const { redis } of [server, cluster])
    await mapLimited([...users], AT_ONCE, async (user, n) => {
      await redis.restore(homeKey(user), TTL_MS, copies[n % sizes] as Buffer);
      await redis.hset(hiddenKey(user), "~state", "complete");
    });
}

/** CPU time of an entry. Each side has a worker of its own; a batch holds a drop of each author. */
export async function entryCosts(
  bench: Bench,
  sides: Both<Side>,
  { audience, posts, ...sizes }: EntrySizes,
): Promise<Both<Cpu>> {
  const env = {
    TIMELINE_MAX_ENTRIES: String(sizes.entries),
    ...limited({ concurrency: Math.ceil(audience.authors / DROPS_A_BATCH) }),
  };
  const works = await onBoth(sides, async (side) => {
    const worker = await bench.service(side, { roles: "fanout", env });
    return { side, worker, ...postingTo(side, worker, { audience, posts }) };
  });
  const costs = await cpuInTurns({ server: works.server.turn, cluster: works.cluster.turn }, sizes.turns);
  const checked = Math.floor(sizes.entries * CHECKED);
  for (const { side, worker, posted } of [works.server, works.cluster]) {
    for (let author = 0; author < audience.authors; author++)
      await checkHomes(side.redis, usersOf(audience, author), posted(author).slice(-checked));
    check((await side.streams.count("DLQ")) === 0, "no drop is a dead letter");
    await worker.stop();
  }
  return costs;
}

function postingTo(side: Side, worker: { readonly pid: number }, { audience, posts }: Posting) {
  const ids: string[] = [];
  const round = async (): Promise<number> => {
    const some = dropIds(posts * audience.authors, 1_000_000 + (await side.streams.count("DROPS")));
    ids.push(...some);
    await postDrops(
      side.streams,
      some.map((id, n) => [id, authorOf(audience, n % audience.authors)]),
    );
    return some.length * (audience.followers + 1);
  };
  const post = async (): Promise<number> => {
    const isOver = endOfTurn();
    let entries = 0;
    do entries += await round();
    while (!isOver());
    return entries;
  };
  return {
    turn: () => cpuOfUnit(side, worker, post),
    posted: (author: number): string[] => ids.filter((_, n) => n % audience.authors === author),
  };
}
