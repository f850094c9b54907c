import { expect } from "@jest/globals";
import { expectHome, expectTimelines, idsOf } from "../support/oracle.js";
import { type Stack, sharedStack, testWithStack } from "../support/stack.js";
import { created, deleted, followed, received, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";
import type { WorldDrop } from "../support/world.js";

const NOON = Date.now() - 3_600_000;
const MINUTE = 60_000;

const events = sharedStack();

let casts = 0;

/** Users whom no other test has. */
function people(): Readonly<Record<"alice" | "bob" | "carol" | "dave", string>> {
  casts += 1;
  return { alice: `alice-${casts}`, bob: `bob-${casts}`, carol: `carol-${casts}`, dave: `dave-${casts}` };
}

const histories: TimelineEvent[][] = [];

/** Begins the history of a test; the shared timelines must hold what all of them tell. */
function told(...first: readonly TimelineEvent[]): TimelineEvent[] {
  const history = [...first];
  histories.push(history);
  return history;
}

const everything = (): TimelineEvent[] => histories.flat();

/** Reads homes once while there is nothing to see, so that their keys are complete from the start. */
async function warm({ reads }: Stack, ...users: readonly string[]): Promise<void> {
  for (const user of users) expect((await reads.home(user)).drop_ids).toEqual([]);
}

/** Puts a drop into the upstreams and returns the event that tells of it. */
function posted({ world }: Stack, drop: WorldDrop): TimelineEvent {
  world.post(drop);
  return created({ visibility: "public", ...drop });
}

events("each visibility reaches exactly its timelines, with exact scores", async (stack) => {
  const { alice, bob, carol, dave } = people();
  const everyone = [alice, bob, carol, dave];
  await warm(stack, ...everyone);
  const history = told(followed(bob, alice, stack.world.follow(bob, alice)));
  history.push(followed(carol, alice, stack.world.follow(carol, alice)));
  const alices = { user_id: alice, created_at: NOON };
  history.push(posted(stack, { ...alices, drop_id: "to-all", visibility: "public" }));
  history.push(posted(stack, { ...alices, drop_id: "quietly", visibility: "unlisted", created_at: NOON + 1 }));
  history.push(posted(stack, { ...alices, drop_id: "to-followers", visibility: "followers", created_at: NOON + 2 }));
  history.push(
    posted(stack, {
      ...alices,
      drop_id: "to-some",
      visibility: "direct",
      recipients: [bob, dave],
      created_at: NOON + 3,
    }),
  );
  history.push(
    posted(stack, { ...alices, drop_id: "to-nobody", visibility: "direct", recipients: [], created_at: NOON + 4 }),
  );
  history.push(posted(stack, { ...alices, drop_id: "oldest", visibility: "public", created_at: 0 }));
  await stack.publish(...history);
  await stack.streams.settled(history.length);
  await expectTimelines(stack.redis, everyone, everything());
  expect(idsOf((await held(stack.redis, homeKey(bob))).entries)).toContain("to-some");
  expect((await held(stack.redis, homeKey(dave))).entries).toEqual([]);
});

events("a home that nobody has read yet gets what fan-out writes", async (stack) => {
  const { alice, bob } = people();
  stack.world.follow(bob, alice);
  const history = told(posted(stack, { drop_id: "first", user_id: alice, created_at: NOON }));
  await stack.publish(...history);
  await stack.streams.settled(1);
  expect((await held(stack.redis, homeKey(bob))).entries).toEqual([["first", NOON]]);
  expect((await held(stack.redis, homeKey(alice))).entries).toEqual([["first", NOON]]);
});

events("created_at may be RFC 3339, with an offset, and a little ahead", async (stack) => {
  const { alice } = people();
  await warm(stack, alice);
  const ahead = Date.now() + 4 * MINUTE;
  const dates = [
    ["zulu", "2024-02-29T12:00:00Z"],
    ["millis", "2024-02-29T12:00:00.123Z"],
    ["offset", "2024-02-29T13:30:00.5+01:30"],
    ["west", "2024-02-29T04:00:01-08:00"],
  ] as const;
  const history = told(
    ...dates.map(([drop_id, created_at]) => {
      stack.world.post({ drop_id, user_id: alice, created_at: Date.parse(created_at) });
      return created({ drop_id, user_id: alice, visibility: "public", created_at });
    }),
  );
  history.push(posted(stack, { drop_id: "ahead", user_id: alice, created_at: ahead }));
  await stack.publish(...history);
  await stack.streams.settled(history.length);
  await expectTimelines(stack.redis, [alice], everything());
});

events("remote drops go to global, and to followers where the actor is known", async (stack) => {
  const { bob, carol } = people();
  const actor = "https://remote.example/users/rita";
  await warm(stack, bob, carol);
  const history = told(followed(bob, actor, stack.world.follow(bob, actor)));
  const seen = { drop_id: "https://remote.example/notes/1", user_id: actor, created_at: NOON };
  stack.world.post({ ...seen, remote: true });
  history.push(received(seen));
  history.push(received({ drop_id: "https://remote.example/notes/2", created_at: "2024-05-01T00:00:00Z" }));
  await stack.publish(...history);
  await stack.streams.settled(history.length);
  await expectTimelines(stack.redis, [bob, carol], everything());
});

testWithStack("a remote drop from the future is taken for one of now", {}, async (stack) => {
  const before = Date.now();
  await stack.publish(received({ drop_id: "https://remote.example/notes/late", created_at: before + 3_600_000 }));
  await stack.streams.settled(1);
  const [entry] = (await held(stack.redis, "timeline:global")).entries;
  expect(entry?.[0]).toBe("https://remote.example/notes/late");
  expect(entry?.[1]).toBeGreaterThanOrEqual(before);
  expect(entry?.[1]).toBeLessThanOrEqual(Date.now());
});

// Invariant 4.
events("deletions remove everywhere, with and without the author's id, remote ones too", async (stack) => {
  const { alice, bob, carol } = people();
  const actor = `rita-of-${alice}`;
  await warm(stack, alice, bob, carol);
  const history = told(followed(bob, alice, stack.world.follow(bob, alice)));
  history.push(followed(bob, actor, stack.world.follow(bob, actor)));
  for (const name of ["kept", "named", "unnamed"]) {
    history.push(posted(stack, { drop_id: name, user_id: alice, created_at: NOON }));
  }
  for (const name of ["note-kept", "note-named", "note-unnamed"]) {
    stack.world.post({ drop_id: name, user_id: actor, created_at: NOON, remote: true });
    history.push(received({ drop_id: name, user_id: actor, created_at: NOON }));
  }
  history.push(received({ drop_id: "note-of-nobody", created_at: NOON }));
  await stack.publish(...history);
  await stack.streams.settled(history.length);
  await expectTimelines(stack.redis, [alice, bob, carol], everything());

  stack.world.remove("named", "unnamed", "note-named", "note-unnamed");
  const deletions = [
    deleted("named", alice),
    deleted("unnamed"),
    deleted("note-named", actor),
    deleted("note-unnamed"),
  ];
  deletions.push(deleted("note-of-nobody"), deleted("never-heard-of", alice), deleted("nor-of-this"));
  history.push(...deletions);
  await stack.publish(...deletions);
  await stack.streams.settled(history.length);
  expect((await stack.reads.home(bob)).drop_ids).toEqual(["note-kept", "kept"]);
  await expectTimelines(stack.redis, [alice, bob, carol], everything());
});

events("a follow brings an author's drops of all times, an unfollow takes them away", async (stack) => {
  const { alice, bob, carol } = people();
  const { world, publish, streams, redis } = stack;
  await warm(stack, alice, bob, carol);
  const history = told();
  for (let number = 0; number < 30; number += 1) {
    const visibility = (["public", "unlisted", "followers", "direct"] as const)[number % 4] ?? "public";
    const recipients = number % 8 === 3 ? [bob] : [carol];
    history.push(
      posted(stack, { drop_id: `a-${number}`, user_id: alice, created_at: NOON + number, visibility, recipients }),
    );
    history.push(
      posted(stack, { drop_id: `c-${number}`, user_id: carol, created_at: NOON + number, visibility: "unlisted" }),
    );
  }
  await publish(...history);
  await streams.settled(history.length);
  await expectTimelines(redis, [alice, bob, carol], everything());

  for (const author of [alice, carol]) history.push(followed(bob, author, world.follow(bob, author)));
  await publish(...history.slice(-2));
  await streams.settled(history.length);
  await expectTimelines(redis, [alice, bob, carol], everything());
  expect((await held(redis, homeKey(bob))).entries).toHaveLength(30 - 3 + 30);

  history.push(unfollowed(bob, alice, world.unfollow(bob, alice)));
  await publish(...history.slice(-1));
  await streams.settled(history.length);
  await expectTimelines(redis, [alice, bob, carol], everything());
  expect((await held(redis, homeKey(bob))).entries).toHaveLength(30);
});

// Invariant 3.
events("of two times for one id the smaller wins, in either order", async (stack) => {
  const { alice, bob } = people();
  await warm(stack, alice, bob);
  const history = told(followed(bob, alice, stack.world.follow(bob, alice)));
  await stack.publish(...history);
  for (const [drop_id, byEvent, byNetwork] of [
    ["rises", NOON, NOON + 5_000],
    ["falls", NOON + 5_000, NOON],
  ] as const) {
    stack.world.post({ drop_id, user_id: alice, created_at: byEvent });
    const local = created({ drop_id, user_id: alice, visibility: "public", created_at: byEvent });
    const remote = received({ drop_id, user_id: alice, created_at: byNetwork });
    for (const event of [local, remote]) {
      history.push(event);
      await stack.publish(event);
      await stack.streams.settled(history.length);
    }
  }
  const expected = [
    ["rises", NOON],
    ["falls", NOON],
  ];
  const { entries } = await held(stack.redis, "timeline:global");
  expect(entries.filter(([id]) => id === "rises" || id === "falls")).toEqual(expected);
  expect((await held(stack.redis, homeKey(bob))).entries).toEqual(expected);
});

// Invariant 4.
events("a create after its delete stays dead", async (stack) => {
  const { alice, bob } = people();
  const { world, publish, streams, redis, reads } = stack;
  await warm(stack, alice, bob);
  const history = told(followed(bob, alice, world.follow(bob, alice)));
  const late = posted(stack, { drop_id: "late", user_id: alice, created_at: NOON });
  world.remove("late");
  history.push(deleted("late", alice), deleted("https://remote.example/notes/late"));
  await publish(...history);
  await streams.settled(history.length);
  history.push(late, received({ drop_id: "https://remote.example/notes/late", created_at: NOON }));
  await publish(...history.slice(-2));
  await streams.settled(history.length);
  await expectTimelines(redis, [alice, bob], everything());
  expect((await reads.home(bob)).drop_ids).toEqual([]);
  const dead = ["late", "https://remote.example/notes/late"];
  for (const page of [await reads.local({ limit: 100 }), await reads.global({ limit: 100 })])
    expect([page.has_more, page.drop_ids.filter((id) => dead.includes(id))]).toEqual([false, []]);
});

// Invariant 3.
events("an older version of an edge changes nothing", async (stack) => {
  const { alice, bob, carol } = people();
  const { world, publish, streams, redis } = stack;
  await warm(stack, alice, bob, carol);
  const history = told(posted(stack, { drop_id: "one", user_id: alice, created_at: NOON }));
  world.follow(bob, alice, 5);
  world.unfollow(carol, alice, 7);
  history.push(followed(bob, alice, 5), unfollowed(carol, alice, 7));
  await publish(...history);
  await streams.settled(history.length);
  const late = [unfollowed(bob, alice, 4), followed(carol, alice, 6), followed(carol, alice, 2)];
  for (const event of late) {
    history.push(event);
    await publish(event);
    await streams.settled(history.length);
    await expectTimelines(redis, [alice, bob, carol], everything());
  }
  expect((await held(redis, homeKey(bob))).entries).toHaveLength(1);
  expect((await held(redis, homeKey(carol))).entries).toHaveLength(0);
  history.push(posted(stack, { drop_id: "two", user_id: alice, created_at: NOON + 1 }));
  await publish(...history.slice(-1));
  await streams.settled(history.length);
  await expectHome(redis, bob, history);
  await expectHome(redis, carol, history);
});
