import { expect, test } from "@jest/globals";
import { checkPublication, type PublicationDeps } from "../../../../src/consistency/audit/publications.js";
import type { FanoutCompleted } from "../../../../src/contracts/fanout.js";
import { Visibility } from "../../../../src/gen/avion/posts.js";
import { silent } from "../../../../src/kernel/logger.js";
import type { StoredEntry } from "../../../../src/state/entries/audited.redis.js";
import type { WaitingEvent } from "../../../../src/state/messages/waiting.redis.js";
import { NAMES_NOBODY } from "../../../support/world.js";

const NOW = 1_000_000;

const unapplied = (start: number, ...waiting: readonly WaitingEvent[]) => ({ start, waiting });
const COMPLETED: FanoutCompleted = {
  ...{ event: "drop_created", drop_id: "d", user_id: "alice", recipients: 2, chunks: 1 },
  ...{ created_at: NOW, admitted_at: NOW, landed_at: NOW, lag_ms: 0 },
};
const HELD: StoredEntry = { floor: 0, score: NOW };
const ABSENT: StoredEntry = { floor: 0, score: undefined };

/** A drop of alice, whom bob and carol follow, in timelines by name. */
function scene(stored: Record<string, StoredEntry>, changes: Partial<PublicationDeps> = {}) {
  const repaired: string[] = [];
  const timelines: Record<string, StoredEntry> = {
    ...{ alice: HELD, bob: HELD, carol: HELD, local: HELD, global: HELD },
    ...stored,
  };
  const deps: PublicationDeps = {
    readEntry: async ({ name }) => timelines[name] as StoredEntry,
    sampleFollowers: async () => ["bob", "carol"],
    findDrop: async () => ({
      ...{ drop_id: "d", user_id: "alice", created_at: NOW, deleted: false },
      ...{ repost_of: "", repost_author: "", ...NAMES_NOBODY },
      ...{ visibility: Visibility.PUBLIC, recipients: [] },
    }),
    tombstonedAmong: async () => new Set(),
    unfollowedAmong: async () => [],
    readUnapplied: async () => unapplied(Number.POSITIVE_INFINITY),
    repair: async ({ name }) => void repaired.push(name),
    hides: async () => undefined,
    judgesReplies: false,
    maybeLost: () => false,
    recheckMs: 0,
    ...changes,
  };
  const check = (completed: Partial<FanoutCompleted> = {}) =>
    checkPublication(deps, { ...COMPLETED, ...completed }, { log: silent, stopping: new AbortController().signal });
  return { check, repaired, timelines, deps };
}

const DIRECT = {
  ...{
    drop_id: "d",
    user_id: "alice",
    created_at: NOW,
    deleted: false,
    repost_of: "",
    repost_author: "",
    ...NAMES_NOBODY,
  },
  ...{ visibility: Visibility.DIRECT, recipients: ["bob"] },
};

test("a drop missing from complete timelines is lost, and those are rebuilt", async () => {
  const { check, repaired } = scene({ bob: ABSENT, global: ABSENT });
  expect(await check()).toBe("lost");
  expect(repaired.toSorted()).toEqual(["bob", "global"]);
});

test.each<[string, Record<string, StoredEntry>, Partial<PublicationDeps>, string]>([
  ["is there", {}, {}, "same"],
  ["lies below the floor", { bob: { floor: NOW + 1, score: undefined } }, {}, "same"],
  ["lies at the floor", { bob: { floor: NOW, score: undefined } }, {}, "same"],
  ["is in a timeline without a floor", { bob: { floor: undefined, score: undefined } }, {}, "same"],
  ["is in a timeline being rebuilt", { bob: { floor: -7, score: undefined } }, {}, "same"],
  ["is missing from the home of somebody who left", { bob: ABSENT }, { unfollowedAmong: async () => ["bob"] }, "same"],
  ["is deleted", { bob: ABSENT }, { tombstonedAmong: async () => new Set(["d"]) }, "skipped"],
  ["is unknown to the upstreams", { bob: ABSENT }, { findDrop: async () => undefined }, "skipped"],
  ["may be what Redis lost", { bob: ABSENT }, { maybeLost: () => true }, "skipped"],
  ["is direct, to somebody else", { carol: ABSENT, local: ABSENT }, { findDrop: async () => DIRECT }, "same"],
  ["is direct, to this person", { bob: ABSENT }, { findDrop: async () => DIRECT }, "lost"],
])("a drop that %s", async (_, stored, changes, result) => {
  const { check, repaired } = scene(stored, changes);
  expect([await check(), repaired.length]).toEqual([result, result === "lost" ? 1 : 0]);
});

test("a remote drop is looked for in global and the followers' homes, and not where it never goes", async () => {
  const { check, repaired } = scene({ alice: ABSENT, local: ABSENT, carol: ABSENT, global: ABSENT });
  expect(await check({ event: "ap_drop_received" })).toBe("lost");
  expect(repaired.toSorted()).toEqual(["carol", "global"]);
  expect(await check({ event: "ap_drop_received", user_id: "" })).toBe("skipped");
});

test("a remote drop beyond the share of global is not lost, and a local one is", async () => {
  const left = { global: { ...ABSENT, remoteFloor: NOW } };
  expect(await scene(left).check({ event: "ap_drop_received" })).toBe("same");
  expect(await scene({ global: { ...ABSENT, remoteFloor: NOW - 1 } }).check({ event: "ap_drop_received" })).toBe(
    "lost",
  );
  expect(await scene(left).check()).toBe("lost");
});

test("a drop that is there at the second look was under way, and nothing is decided while events wait", async () => {
  const late = scene({ bob: ABSENT });
  const applied = async () => {
    late.timelines["bob"] = HELD;
    return unapplied(Number.POSITIVE_INFINITY);
  };
  expect(await scene({}, { ...late.deps, readUnapplied: applied }).check()).toBe("same");
  const stopping = AbortSignal.abort();
  const { deps } = scene({ bob: ABSENT }, { readUnapplied: async () => unapplied(0) });
  expect(await checkPublication(deps, COMPLETED, { log: silent, stopping })).toBe("undecided");
});

test("a deleted drop that is still in a timeline is reported as kept", async () => {
  const gone = { alice: ABSENT, bob: ABSENT, carol: ABSENT, local: ABSENT, global: ABSENT };
  const deletion = { event: "drop_deleted" };
  expect(await scene(gone).check(deletion)).toBe("same");
  const { check, repaired } = scene({ ...gone, carol: HELD, local: HELD });
  expect(await check(deletion)).toBe("kept");
  expect(repaired.toSorted()).toEqual(["carol", "local"]);
});

test("a home whose follow waits for a single user is not decided, and the others are", async () => {
  const waits = { consumer: "graph", seq: 1, at: 0, affected: { kind: "reader", user: "bob" } } as const;
  const readUnapplied = async () => unapplied(Number.POSITIVE_INFINITY, waits);
  expect(await scene({ bob: ABSENT }, { readUnapplied }).check()).toBe("undecided");
  const { check, repaired } = scene({ bob: ABSENT, carol: ABSENT }, { readUnapplied });
  expect([await check(), repaired]).toEqual(["lost", ["carol"]]);
});
