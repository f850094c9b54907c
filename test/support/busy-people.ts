import type { BusyWorld } from "./busy-world.js";
import { below, oneOf, type Random } from "./random.js";

/** People for whom one worker decides, and nobody else does. */
export interface Group {
  readonly own: readonly string[];
  /** So many of them, the first, make half of all drops. */
  readonly busy: number;
}

/** What one person does concerns nobody of whom another worker decides, so that the record is exact. */
export async function act(world: BusyWorld, random: Random, group: Group): Promise<void> {
  const { own } = group;
  const [user, busy] = [oneOf(random, own), oneOf(random, own.slice(0, group.busy))];
  const followed = [...(world.follows.get(user) ?? [])];
  const muted = [...(world.mutes.get(user) ?? [])];
  const kind = below(random, 40);
  if (kind < 20) return void (await world.post(kind < 10 ? user : busy));
  const drops = world.dropsOf(kind < 24 ? busy : user);
  if (kind < 27) return drops.length === 0 ? undefined : world.delete(oneOf(random, drops.slice(-5)));
  if (kind < 31 && followed.length > 0) return world.unfollow(user, oneOf(random, followed));
  if (kind === 31 && followed.length > 0) return world.mute(user, oneOf(random, followed));
  if (kind === 32 && muted.length > 0) return world.unmute(user, oneOf(random, muted));
  const other = oneOf(random, kind === 33 ? own : world.people);
  if (other === user) return;
  if (kind === 33) await world.block(user, other);
  else await world.follow(user, other);
}

/** One of a group shares a drop of another one. */
export async function share(world: BusyWorld, random: Random, { own }: Group): Promise<void> {
  const drops = world.dropsOf(oneOf(random, own)).filter(({ repost_of }) => repost_of === "");
  if (drops.length > 0) await world.share(oneOf(random, drops.slice(-5)), oneOf(random, own));
}
