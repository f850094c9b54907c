import { expect, test } from "@jest/globals";
import { explain, type Facts } from "../../../../src/consistency/explain/explain.js";

const SHOWN: Facts = {
  unknownUsers: [],
  author: "alice",
  createdAt: 2_000,
  admitted: [{ event: "drop_created", seq: 1, time: 2_001 }],
  isApplied: true,
  isListed: true,
  isTombstoned: false,
  isPastRetention: false,
  isErased: false,
  isForUser: true,
  follows: true,
  isHidden: false,
  isReplyToOthers: false,
  isPulled: false,
  isMerged: false,
  score: 2_000,
  floor: 0,
};
const LACKS = { score: undefined };

test.each<[string, Partial<Facts>, string, string]>([
  ["a home that has the drop as it must", {}, "shown", "as it must"],
  ["a home that lacks it", LACKS, "missing", "lacks it"],
  ["a home that lacks it while its event waits", { ...LACKS, isApplied: false }, "under-way", "not applied"],
  ["a home that is not stored", { ...LACKS, floor: undefined }, "not-stored", "rebuilds it"],
  ["a home that is being rebuilt", { ...LACKS, floor: -5 }, "not-stored", "rebuilds it"],
  ["a home that ends above it", { ...LACKS, floor: 2_000 }, "older", "ends above it"],
  ["a home that ends below it", { ...LACKS, floor: 1_999 }, "missing", "lacks it"],
  ["a deleted drop that is still there", { isTombstoned: true }, "left-out", "deleted; pages hide it"],
  ["a deleted drop", { ...LACKS, isTombstoned: true, isListed: false }, "left-out", "it is deleted"],
  ["a drop of an erased author", { ...LACKS, isErased: true }, "left-out", "erased"],
  ["a drop that is not listed", { ...LACKS, isListed: false, isForUser: undefined }, "left-out", "PostService"],
  ["a direct drop for others", { ...LACKS, isForUser: false }, "left-out", "direct drop for others"],
  ["a drop of somebody not followed", { ...LACKS, follows: false }, "left-out", "does not follow"],
  ["a drop of a muted author", { ...LACKS, isHidden: true }, "left-out", "mute hides it"],
  ["a reply to others", { ...LACKS, isReplyToOthers: true }, "left-out", "reply to somebody whom the user does not"],
  ["the same in the author's timeline", { isMerged: true, isReplyToOthers: true }, "left-out", "pages hide it"],
  ["an unfollowed author's drop that is there", { follows: false }, "unexpected", "does not follow the author, and"],
  ["the same while an event waits", { follows: false, isApplied: false }, "under-way", "not applied"],
  ["a muted author's drop in the author's timeline", { isMerged: true, isHidden: true }, "left-out", "pages hide it"],
  ["a muted author's drop in the home itself", { isHidden: true }, "unexpected", "and the home has it"],
  ["a drop older than the retention", { isPastRetention: true }, "left-out", "kept; pages hide it"],
  ["a drop in the home of which nothing is known", { follows: undefined }, "unknown", "name the author"],
  ["a drop of nobody known", { ...LACKS, author: undefined, follows: undefined }, "unknown", "name the author"],
  ["a misspelt user", { ...LACKS, isTombstoned: true, unknownUsers: ["adda"] }, "unknown", 'know no user "adda"'],
])("%s is explained", (_, facts, verdict, why) => {
  expect(explain({ ...SHOWN, ...facts })).toEqual({ verdict, why: expect.stringContaining(why) });
});
