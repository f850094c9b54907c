import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { samplesOf } from "../support/scrape.js";
import type { Service } from "../support/service.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, followed, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import { heldBy, homeKey } from "../support/timeline-keys.js";

const START = Date.now() - 3_600_000;

function post({ world }: Stack, author: string, count: number, prefix = "drop"): TimelineEvent[] {
  const drops = Array.from({ length: count }, (_, number) => {
    return {
      drop_id: `${prefix}-${author}-${number}`,
      user_id: author,
      visibility: "public" as const,
      created_at: START + number,
    };
  });
  world.post(...drops);
  return drops.map(created);
}

const follow = ({ world }: Stack, follower: string, author: string): TimelineEvent =>
  followed(follower, author, world.follow(follower, author));

/** Number of users who hold so many drops. */
async function holding({ redis }: Stack, users: readonly string[], drops: number): Promise<number> {
  const homes = await heldBy(redis, users.map(homeKey));
  return users.filter((user) => (homes.get(homeKey(user))?.entries.length ?? 0) === drops).length;
}

/** Edges in jobs that are not done. */
async function waitingEdges({ streams }: Stack): Promise<number> {
  const jobs = (await streams.all("FANOUT")).filter(({ subject }) => subject.startsWith("fanout.edges."));
  return jobs.reduce((sum, { body }) => sum + (JSON.parse(String(body)) as { edges: [] }).edges.length, 0);
}

const CROWD = Array.from({ length: 10_000 }, (_, number) => `fan-${number}`);
const FRIENDS = Array.from({ length: 5 }, (_, number) => `friend-${number}`);
const OTHERS = Array.from({ length: 50 }, (_, number) => `other-${number}`);

testWithStack(
  "10,000 follows of one user: follows and drops of others are applied while those wait",
  { timeoutMs: 120_000 },
  async (stack) => {
    const { streams, upstreams } = stack;
    for (const author of ["star", ...FRIENDS]) post(stack, author, 5);
    const heal = upstreams.inject({ method: "GetDropsByUserID", user: "star", code: status.UNAVAILABLE });
    await stack.publish(...CROWD.map((fan) => follow(stack, fan, "star")));
    const isLogged = async () => (await streams.count("DROPS")) >= CROWD.length || "the crowd is not admitted yet";
    await eventually(isLogged, "the log holds the crowd", 60_000);
    await stack.publish(...OTHERS.map((other, at) => follow(stack, other, FRIENDS[at % FRIENDS.length] as string)));
    const followsDone = async () => (await holding(stack, OTHERS, 5)) === OTHERS.length;
    await eventually(followsDone, "the others' follows are applied", 60_000);
    await stack.publish(...FRIENDS.flatMap((friend) => post(stack, friend, 3, "later")));
    const dropsDone = async () => (await holding(stack, OTHERS, 8)) === OTHERS.length;
    await eventually(dropsDone, "drops for the others are applied", 60_000);
    expect(await waitingEdges(stack)).toBeGreaterThan(CROWD.length * 0.9);
    expect(await holding(stack, CROWD, 0)).toBe(CROWD.length);
    heal();
    await streams.settledWith(CROWD.length + OTHERS.length + 3 * FRIENDS.length, 60_000);
    expect(await holding(stack, CROWD, 5)).toBe(CROWD.length);
    expect([await streams.count("FANOUT"), await streams.count("DLQ")]).toEqual([0, 0]);
  },
);

/** Jobs of edges that a process has finished. */
async function jobsDone({ httpUrl }: Service): Promise<number> {
  const samples = samplesOf(await (await fetch(`${httpUrl}/metrics`)).text());
  const own = samples.filter(
    ({ name, labels }) => name === "timeline_deliveries_total" && labels["consumer"] === "graph-hot",
  );
  return own.reduce((sum, { value }) => sum + value, 0);
}

// Invariant 1.
testWithStack(
  "processes share the edges of one user, one of them is killed: the newest version of each edge is in force",
  { slow: true, env: { TIMELINE_ACK_WAIT_MS: "3500" }, timeoutMs: 150_000 },
  async (stack) => {
    const { streams, world } = stack;
    const doomed = await stack.start({ roles: "fanout" });
    const other = await stack.start({ roles: "fanout" });
    post(stack, "star", 20);
    const fans = CROWD.slice(0, 3_000);
    const [stay, leave] = [fans.slice(0, 2_000), fans.slice(2_000)];
    const follows = fans.map((fan) => follow(stack, fan, "star"));
    const back = stay
      .slice(0, 1_000)
      .flatMap((fan) => [unfollowed(fan, "star", world.unfollow(fan, "star")), follow(stack, fan, "star")]);
    const gone = leave.map((fan) => unfollowed(fan, "star", world.unfollow(fan, "star")));
    const history = [...gone.slice(500), ...back.toReversed(), ...follows, ...gone.slice(0, 500)];
    await stack.publish(...history);
    await eventually(async () => (await holding(stack, stay, 20)) > 100, "the edges are being applied");
    await doomed.crash();
    expect(await streams.unfinished()).toBeGreaterThan(0);
    await streams.settledWith(history.length, 90_000);
    expect(await holding(stack, stay, 20)).toBe(stay.length);
    expect(await holding(stack, leave, 0)).toBe(leave.length);
    expect([await streams.count("FANOUT"), await streams.count("DLQ")]).toEqual([0, 0]);
    for (const service of [stack.service, other]) expect(await jobsDone(service)).toBeGreaterThan(0);
  },
);
