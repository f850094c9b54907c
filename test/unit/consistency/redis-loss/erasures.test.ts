import { expect, test } from "@jest/globals";
import { recoveringErasures } from "../../../../src/consistency/redis-loss/erasures.js";
import type { TimelineEvent } from "../../../../src/contracts/events.js";

const HOUR = 3_600_000;
const NOW = 1_000 * HOUR;
const LOSS = { since: NOW, redis: true, log: false, record: false };

const erased = (user_id: string): TimelineEvent => ({ name: "user_erased", payload: { user_id, version: 1 } });
const nameOf = ({ payload }: TimelineEvent): string => ("user_id" in payload ? String(payload.user_id) : "");

async function* logged() {
  yield { event: erased("long ago"), seq: 1, time: NOW - 30 * HOUR };
  yield { event: erased("lately"), seq: 2, time: NOW - 20 * HOUR };
  yield { event: erased("lately"), seq: 3, time: NOW - 2 * HOUR };
  yield { event: erased("afterwards"), seq: 4, time: NOW + HOUR };
}

const everybody = async (users: readonly string[]) => new Set(users);
const DONE = { readErasures: logged, apply: async () => undefined };

// Invariant 4.
test("a recovery records who is erased first, and has those forgotten again whose removal may be lost", async () => {
  const done: string[] = [];
  const recover = recoveringErasures(
    {
      readErasures: logged,
      apply: async (event) => void done.push(`recorded ${nameOf(event)}`),
      readmit: async (event) => void done.push(`again ${nameOf(event)}`),
      among: everybody,
    },
    async () => {
      done.push("recovered");
      return { events: 7, setAside: [] };
    },
  );
  expect(await recover(LOSS, new AbortController().signal)).toEqual({ events: 7, setAside: [] });
  expect(done).toEqual([
    "recorded long ago",
    "recorded lately",
    "recorded lately",
    "recorded afterwards",
    "recovered",
    "again lately",
    "again afterwards",
  ]);
});

test("nobody is forgotten again before everything lost is applied", async () => {
  const done: string[] = [];
  const recover = recoveringErasures(
    { ...DONE, readmit: async (event) => void done.push(nameOf(event)), among: everybody },
    () => Promise.reject(new Error("Redis is away")),
  );
  await expect(recover(LOSS, new AbortController().signal)).rejects.toThrow("Redis is away");
  expect(done).toEqual([]);
});

test("a user whose erasure was lifted since is not forgotten again", async () => {
  const done: string[] = [];
  const recover = recoveringErasures(
    { ...DONE, readmit: async (event) => void done.push(nameOf(event)), among: async () => new Set(["afterwards"]) },
    async () => ({ events: 7, setAside: [] }),
  );
  await recover(LOSS, new AbortController().signal);
  expect(done).toEqual(["afterwards"]);
});
