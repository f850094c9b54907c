import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { listOfReader, listReader } from "../../../src/contracts/lists.js";
import { type Byline, bylineOf, bylineText, entryOfDrop, listedBylineText } from "../../../src/contracts/timelines.js";
import { type Drop, Visibility } from "../../../src/gen/avion/posts.js";

test("the reader of a list leads back to it, and other names are of users", () => {
  const list = randomUUID();
  expect(listOfReader(listReader(list))).toBe(list);
  for (const user of ["ada", "list:", "list:ada", `list:${list}x`, `list:${list.toUpperCase()}`, `x:${list}`])
    expect([user, listOfReader(user)]).toEqual([user, undefined]);
});

const user = fc.string({ minLength: 1, maxLength: 8, unit: "grapheme" });
const byline: fc.Arbitrary<Byline> = fc.oneof(
  fc.record({ author: user }),
  fc.record({ author: user, parent: user }),
  fc.record({ author: user, original: user, repostOf: user }),
);

test("a byline in a list tells the same as elsewhere, and that a drop is for followers", () => {
  fc.assert(
    fc.property(byline, (by) => {
      expect(listedBylineText(by)).toBe(bylineText(by));
      expect(bylineOf(listedBylineText({ ...by, forFollowers: true }))).toEqual({ ...by, forFollowers: true });
      expect(bylineText({ ...by, forFollowers: true })).toBe(bylineText(by));
    }),
  );
});

test("a drop is for followers unless it is public or unlisted, also with a visibility that is unknown", () => {
  const drop = { drop_id: "d", user_id: "ada", created_at: 1, repost_of: "", reply_to_author: "" } as Drop;
  const marks = [0, 1, 2, 3, 4, 9].map((visibility) => entryOfDrop({ ...drop, visibility }).by.forFollowers);
  expect(marks).toEqual([true, undefined, undefined, true, true, true]);
  expect(Visibility.UNLISTED).toBe(2);
});
