import { type Fences, generationSince } from "../contracts/fences.js";
import { CLOCK_SKEW_MS } from "../contracts/times.js";
import type { Apply, Change } from "./apply.js";
import { audienceOf } from "./audience.js";

interface LeaversDeps {
  readonly fences: Fences;
  readonly apply: Apply;
}

/**
 * Makes the step that ends every fan-out: what it leaves in the homes of those
 * who have left the author lately, and so are in no list of followers.
 *
 * **A deletion.** An unfollow takes out what the author's drops show, and a drop
 * that is deleted by then they show no more. So one of two must see the other:
 *
 * - a change of an edge, when it is handled, notes who left, if that is what it
 *   says, then changes the generation, then takes out all dead drops that the
 *   home holds (`graph.ts`);
 * - a deletion sets the tombstone, then reads the generation, then the
 *   followers (as of that generation) and the leavers.
 *
 * A user who is neither in those followers nor noted has a change of the edge
 * that was noted after the leavers were read, or that changed the generation
 * after it was read: its look for dead drops comes later still, and finds the
 * tombstone. What is written to the home after that look is looked at by who
 * writes it. Handling any of it again, in any order, repeats the same steps.
 *
 * **A publication** that is handled again, since its process died between write
 * and look, or a reply was lost, may have written by a list of followers that it
 * does not get a second time. Who was noted since it was admitted is taken out.
 */
export function createForLeavers({ fences, apply }: LeaversDeps): (change: Change) => Promise<void> {
  return async (change) => {
    const dead = change.action === "remove";
    const since = dead ? 0 : change.admitted_at - CLOCK_SKEW_MS;
    // Whoever leaves changes the generation: where it is older nobody has, and that is asked at no cost.
    if (generationSince(change.generation) < since) return;
    for await (const users of fences.recentUnfollowers(change.user_id, since)) {
      // Who is back keeps what lives, and nobody what is dead.
      if (dead) await apply.to(change, audienceOf(users));
      else await apply.takeOut(change, await fences.unfollowedAmong(change.user_id, users));
    }
  };
}
