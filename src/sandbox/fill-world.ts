import type { NatsConnection } from "nats";
import { STREAM } from "../contracts/subjects.js";
import { pause, SECOND } from "../kernel/time.js";
import type { People } from "./world/people.grpc.js";
import { planWorld, seedWorld } from "./world/seed.js";

export interface SeedSummary {
  readonly users: number;
  readonly follows: number;
  readonly drops: number;
}

/** Fills the services with people, drops and follows by their public API, and waits until fan-out is done. */
export async function fillWorld(
  people: People,
  nats: NatsConnection,
  how: { readonly bigAuthorFollowers: number; readonly onProgress: (text: string) => void },
): Promise<SeedSummary> {
  const plan = planWorld({ bigAuthorFollowers: how.bigAuthorFollowers, now: Date.now() });
  const say = sparingly(how.onProgress);
  await seedWorld(people, plan, (what, done, total) => say(`seeding a world: ${done} of ${total} ${what}`));
  const events = plan.drops.length + plan.follows.length;
  for (;;) {
    // With all of this on one machine a server may answer late.
    const { admitted, underWay } = await progressOf(nats).catch(() => UNKNOWN);
    if (admitted >= events && underWay === 0) break;
    say(`bringing it into the timelines: ${Math.max(0, events - admitted) + underWay} events to go`);
    await pause(SECOND / 10);
  }
  return { users: plan.people.length, follows: plan.follows.length, drops: plan.drops.length };
}

const UNKNOWN = { admitted: 0, underWay: 1 };

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

const SAID_EVERY_MS = SECOND / 2;

function sparingly(say: (text: string) => void): (text: string) => void {
  let next = 0;
  return (text) => {
    if (Date.now() < next) return;
    next = Date.now() + SAID_EVERY_MS;
    say(text);
  };
}
