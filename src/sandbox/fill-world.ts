import type { NatsConnection } from "nats";
import { STREAM } from "../contracts/subjects.js";
import { Visibility } from "../gen/avion/posts.js";
import { Standing } from "../gen/avion/users.js";
import { pause, SECOND } from "../kernel/time.js";
import { LOCKED_AUTHOR, planWorld, SUSPENDED_AUTHOR, seedWorld } from "./world/seed.js";
import type { World } from "./world/world.grpc.js";

const OFFERS = ["Cheap watches", "Cheaper watches"];
const LOOK_MS = SECOND / 10;
const SAID_EVERY_MS = SECOND / 2;

/** Fills the services with people, drops and follows by their public API, and waits until fan-out is done. */
export async function fillWorld(
  world: World,
  nats: NatsConnection,
  { bigAuthorFollowers, onProgress }: { bigAuthorFollowers: number; onProgress: (text: string) => void },
): Promise<string> {
  let next = 0;
  const say = (text: string): void => {
    if (Date.now() < next) return;
    next = Date.now() + SAID_EVERY_MS;
    onProgress(text);
  };
  const plan = planWorld({ bigAuthorFollowers, now: Date.now() });
  await seedWorld(world, plan, (what, done, total) => say(`seeding a world: ${done} of ${total} ${what}`));
  const reposts = plan.reactions.filter(({ kind }) => kind === "share");
  const events = plan.drops.length + reposts.length + plan.follows.length;
  for (;;) {
    // A server may answer late, because all of this is on one machine.
    const { admitted, underWay } = await progressOf(nats).catch(() => ({ admitted: 0, underWay: 1 }));
    if (admitted >= events && underWay === 0) break;
    say(`bringing it into the timelines: ${Math.max(0, events - admitted) + underWay} events to go`);
    await pause(LOOK_MS);
  }
  await addLocked(world, plan.people.slice(1, 4));
  await addSuspended(world, plan.people.slice(0, 4));
  return `${plan.people.length} users, ${plan.follows.length} follows, ${plan.drops.length} drops`;
}

/** Adds an account that approves followers, with some requests. */
async function addLocked({ users }: World, people: readonly string[]): Promise<void> {
  await users.setProfile({ user_id: LOCKED_AUTHOR, display_name: "Lena", approves_followers: true });
  await users.followMany({ follows: people.map((follower_id) => ({ follower_id, following_id: LOCKED_AUTHOR })) });
}

/** Adds an account whose drops are in the homes of followers, and which is suspended. */
async function addSuspended({ users, posts }: World, people: readonly string[]): Promise<void> {
  const user_id = SUSPENDED_AUTHOR;
  await users.setProfile({ user_id, display_name: "Mallory" });
  await users.followMany({ follows: people.map((follower_id) => ({ follower_id, following_id: user_id })) });
  for (const body of OFFERS) await posts.createDrop({ user_id, visibility: Visibility.PUBLIC, body });
  await users.setStanding({ user_id, standing: Standing.SUSPENDED, reason: "sells watches", by: "ada" });
}

/** Counts the events in the log, and the work that waits or is in flight. */
async function progressOf(nats: NatsConnection): Promise<{ admitted: number; underWay: number }> {
  const manager = await nats.jetstreamManager();
  const { state } = await manager.streams.info(STREAM.drops);
  let underWay = 0;
  for (const stream of [STREAM.drops, STREAM.fanout, STREAM.edges]) {
    for await (const { num_pending, num_ack_pending } of manager.consumers.list(stream))
      underWay += num_pending + num_ack_pending;
  }
  return { admitted: state.last_seq, underWay };
}
