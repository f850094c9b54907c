import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { type EventStream, openEvents } from "../support/sse.js";
import { sharedStack } from "../support/stack.js";
import { created, deleted, edited } from "../support/timeline-events.js";

const live = sharedStack();

/** Events of a drop on a stream, in order. */
const eventsOf = ({ events }: EventStream, drop: string): string[] =>
  events.flatMap(({ event, data }) =>
    data["drop_id"] === drop ? `${event}${event === "drop_edited" ? ` ${Number(data["revision"])}` : ""}` : [],
  );

live("an edit comes once to those who have the drop in their home, and to nobody else", async (stack) => {
  const { world, publish, service } = stack;
  world.follow("bob", "alice");
  world.follow("eve", "rita");
  const [bob, eve, other] = await Promise.all(["bob", "eve", "zoe"].map((user) => openEvents(service.httpUrl, user)));
  if (!bob || !eve || !other) throw new Error("no streams");
  const drop = { drop_id: "edited", user_id: "alice", visibility: "public", created_at: Date.now() - 1_000 } as const;
  const repost = { ...drop, drop_id: "repost", user_id: "rita", repost_of: "edited", repost_author: "alice" };
  world.post(drop, repost);
  await publish(created(drop), created(repost));
  await Promise.all([bob.waitFor("new_drop"), eve.waitFor("new_drop")]);
  for (const revision of [2, 2, 3]) await publish(edited("edited", "alice", revision));
  await eventually(() => eventsOf(bob, "edited").length === 3, "two edits");
  world.remove("edited");
  await publish(deleted("edited", "alice"), edited("edited", "alice", 4));
  await bob.waitFor("drop_deleted");
  await publish(
    created({ ...drop, drop_id: "last", user_id: "bob" }),
    created({ ...drop, drop_id: "last2", user_id: "eve" }),
  );
  await eventually(() => bob.drops().includes("last") && eve.drops().includes("last2"), "the last drops");
  expect(eventsOf(bob, "edited")).toEqual(["new_drop", "drop_edited 2", "drop_edited 3", "drop_deleted"]);
  expect([eventsOf(eve, "edited"), other.events]).toEqual([[], []]);
  for (const stream of [bob, eve, other]) stream.close();
});

// Invariant 3.
live(
  "edits while their drops are fanned out by two processes come after the drops, before the deletions",
  async (stack) => {
    const { world, publish, service } = stack;
    for (let index = 0; index < 40; index++) world.follow(`r${index}`, "mia");
    await stack.start({ roles: "fanout" });
    const streams = await Promise.all([0, 1, 2].map((index) => openEvents(service.httpUrl, `r${index}`)));
    const drops = Array.from({ length: 60 }, (_, index) => {
      return {
        drop_id: `mia-${index}`,
        user_id: "mia",
        visibility: "unlisted",
        created_at: Date.now() - 60_000 + index,
      } as const;
    });
    const kept = drops.filter((_, index) => index % 3 > 0);
    for (const drop of drops) {
      world.post(drop);
      await publish(created(drop), edited(drop.drop_id, "mia"), edited(drop.drop_id, "mia", 3));
      if (kept.includes(drop)) continue;
      world.remove(drop.drop_id);
      await publish(deleted(drop.drop_id, "mia"), edited(drop.drop_id, "mia", 4));
    }
    for (const stream of streams)
      await eventually(() => kept.every(({ drop_id }) => stream.drops().includes(drop_id)), "all drops", 60_000);
    await publish(...kept.map(({ drop_id }) => edited(drop_id, "mia", 5)));
    for (const stream of streams) {
      const missing = () => kept.filter(({ drop_id }) => !eventsOf(stream, drop_id).includes("drop_edited 5"));
      await eventually(() => missing().length === 0, "the last edits", 60_000);
      for (const { drop_id } of drops) {
        const seen = eventsOf(stream, drop_id);
        const edits = seen.filter((event) => event.startsWith("drop_edited"));
        expect(new Set(edits).size).toBe(edits.length);
        const [first, last] = [seen.indexOf(edits[0] as string), seen.lastIndexOf(edits.at(-1) as string)];
        if (edits.length > 0) expect(seen.slice(0, first)).toContain("new_drop");
        if (seen.includes("drop_deleted")) expect(last).toBeLessThan(seen.lastIndexOf("drop_deleted"));
      }
      stream.close();
    }
  },
);
