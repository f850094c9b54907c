import { expect, test } from "@jest/globals";
import { eventsWithoutErased } from "../../../src/consistency/without-erased.js";
import type { TimelineEvent } from "../../../src/contracts/events.js";

const edge = (follower_id: string, following_id: string): TimelineEvent => {
  return { name: "user_followed", payload: { follower_id, following_id, version: 1 } };
};
const mute = (user_id: string, target_id: string): TimelineEvent => {
  return { name: "user_muted", payload: { user_id, target_id, version: 1, expires_at: 0, reposts_only: false } };
};
const deletion = (drop_id: string, user_id?: string): TimelineEvent => {
  return { name: "drop_deleted", payload: { drop_id, user_id } };
};

test("the log without erased users has others' events in order, and deletions without their erased authors", async () => {
  const created = (drop_id: string, user_id: string): TimelineEvent => {
    return { name: "drop_created", payload: { drop_id, user_id, visibility: "public", created_at: 1 } };
  };
  const erasure: TimelineEvent = { name: "user_erased", payload: { user_id: "eve", version: 1 } };
  const others = [edge("ann", "bob"), mute("ann", "bob"), deletion("b1", "bob"), deletion("r1"), created("b2", "bob")];
  const hers = [edge("eve", "bob"), edge("ann", "eve"), mute("eve", "bob"), mute("ann", "eve"), created("e2", "eve")];
  const many = Array.from({ length: 2_500 }, (_, at) => edge(`f${at}`, "bob"));
  const questions: number[] = [];
  const among = async (users: readonly string[]) => {
    questions.push(users.length);
    return new Set(users.filter((user) => user === "eve"));
  };
  async function* log() {
    for (const [seq, event] of [...hers, ...others, deletion("e1", "eve"), erasure, ...many].entries())
      yield { event, seq };
  }
  const kept: TimelineEvent[] = [];
  for await (const { event } of eventsWithoutErased({ among }, log())) kept.push(event);
  expect(kept).toEqual([...others, deletion("e1"), erasure, ...many]);
  expect(questions).toHaveLength(3);
});
