import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { entryOfDrop } from "../../../src/contracts/timelines.js";
import { EventHistory } from "../../support/history.js";
import { PEOPLE } from "../../support/history-cast.js";
import { expectedAfter, idsOf } from "../../support/oracle.js";
import { duplicatedAndShuffled, seeded } from "../../support/random.js";
import { onceIn, REPOST_WINDOW } from "../../support/reposts-once.js";
import { created, followed, received, standing, type TimelineEvent } from "../../support/timeline-events.js";
import { World } from "../../support/world.js";

test("what is expected of a history does not depend on its order, nor on repetitions", () => {
  fc.assert(
    fc.property(fc.integer(), fc.integer(), (seed, other) => {
      const generated = new EventHistory(seeded(seed), new World());
      const history = [...generated.initialFollows(), ...generated.next(80)];
      const at = Date.now();
      const expected = expectedAfter(history, at);
      const again = expectedAfter(duplicatedAndShuffled(seeded(other), history), at);
      expect({ ...again, home: 0, homePage: 0 }).toEqual({ ...expected, home: 0, homePage: 0 });
      for (const person of PEOPLE) {
        expect(again.home(person)).toEqual(expected.home(person));
        expect(again.homePage(person)).toEqual(expected.homePage(person));
      }
    }),
    { numRuns: 50 },
  );
});

test("what is expected of a home and of local is what the upstreams show", () => {
  fc.assert(
    fc.property(fc.integer(), (seed) => {
      const world = new World();
      world.judgesReplies = true;
      const generated = new EventHistory(seeded(seed), world);
      const expected = expectedAfter([...generated.initialFollows(), ...generated.next(80)]);
      for (const person of PEOPLE)
        expect(expected.homePage(person)).toEqual(onceIn(world.homeOf(person).map(entryOfDrop), REPOST_WINDOW));
      expect(idsOf(expected.local)).toEqual(world.localOf().map(({ drop_id }) => drop_id));
    }),
    { numRuns: 50 },
  );
});

const ACTOR = "https://a.spam.example/rita";
const FOLLOWS = ["eve", "sue", ACTOR].map((author) => followed("ada", author, 1));
const drop = (drop_id: string, user_id: string, more = {}): TimelineEvent =>
  created({ drop_id, user_id, visibility: "public", created_at: 1, ...more });
const SAID = [
  drop("a", "eve"),
  drop("b", "sue"),
  drop("c", "eve", { repost_of: "b", repost_author: "sue" }),
  drop("d", "eve", { reply_to: "b", reply_to_author: "sue" }),
  received({ drop_id: "e", user_id: ACTOR, created_at: 1 }),
  drop("f", "eve", { repost_of: "a", repost_author: "eve" }),
];

test.each<[string, TimelineEvent[], string[], string[]]>([
  ["of everybody, each once among its reposts", [], ["f", "e", "d", "c"], ["e", "b", "a"]],
  ["without a suspended user", [standing({ user_id: "sue" }, "suspended")], ["f", "e"], ["e", "a"]],
  ["with a limited user in homes only", [standing({ user_id: "sue" }, "limited")], ["f", "e", "d", "c"], ["e", "a"]],
  ["without a suspended host", [standing({ host: "spam.example" }, "suspended")], ["f", "d", "c"], ["b", "a"]],
  ["after the end", [standing({ user_id: "sue" }, "suspended", { until: 9 })], ["f", "e", "d", "c"], ["e", "b", "a"]],
])("pages are expected to show drops %s", (_, standings, home, global) => {
  const expected = expectedAfter([...FOLLOWS, ...SAID, ...standings], 10);
  expect(expected.homePage("ada").map((item) => item.drop)).toEqual(home);
  expect(expected.globalPage).toEqual(global);
  expect(idsOf(expected.home("ada"))).toEqual(["f", "e", "d", "c", "b", "a"]);
});
