import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { EventHistory, PEOPLE } from "../../support/history.js";
import { expectedAfter } from "../../support/oracle.js";
import { duplicatedAndShuffled, seeded } from "../../support/random.js";
import { World } from "../../support/world.js";

test("what is expected of a history does not depend on its order, nor on repetitions", () => {
  fc.assert(
    fc.property(fc.integer(), fc.integer(), (seed, other) => {
      const generated = new EventHistory(seeded(seed), new World());
      const history = [...generated.initialFollows(), ...generated.next(80)];
      const [expected, again] = [expectedAfter(history), expectedAfter(duplicatedAndShuffled(seeded(other), history))];
      expect(again.local).toEqual(expected.local);
      expect(again.global).toEqual(expected.global);
      for (const person of PEOPLE) expect(again.home(person)).toEqual(expected.home(person));
    }),
    { numRuns: 50 },
  );
});

test("what is expected of a home is what the upstreams show", () => {
  fc.assert(
    fc.property(fc.integer(), (seed) => {
      const world = new World();
      const generated = new EventHistory(seeded(seed), world);
      const expected = expectedAfter([...generated.initialFollows(), ...generated.next(80)]);
      for (const person of PEOPLE)
        expect(expected.home(person)).toEqual(world.homeOf(person).map((drop) => [drop.drop_id, drop.created_at]));
    }),
    { numRuns: 50 },
  );
});
