import { expect, test } from "@jest/globals";
import { Precedence } from "../../../src/kernel/precedence.js";
import { DAY } from "../../../src/kernel/time.js";

function opened() {
  let end = (): void => undefined;
  const until = new Promise<void>((resolve) => {
    end = resolve;
  });
  return { until, end };
}

test("other work begins at once while nothing that goes first is under way", async () => {
  await new Precedence(DAY).turn();
});

test("other work begins once all that goes first has ended, also where it fails", async () => {
  const precedence = new Precedence(DAY);
  const [one, two] = [opened(), opened()];
  const order: string[] = [];
  const first = precedence.first(async () => {
    await one.until;
    order.push("first");
  });
  const failing = precedence.first(async () => {
    await two.until;
    order.push("failing");
    throw new Error("broken");
  });
  const turns = [1, 2].map(() => precedence.turn().then(() => order.push("turn")));
  one.end();
  await first;
  two.end();
  await expect(failing).rejects.toThrow("broken");
  await Promise.all(turns);
  expect(order).toEqual(["first", "failing", "turn", "turn"]);
  await precedence.turn();
});

test("other work begins after a while, however long something goes first", async () => {
  const precedence = new Precedence(1);
  const { until, end } = opened();
  const first = precedence.first(() => until);
  await precedence.turn();
  await precedence.turn();
  end();
  await first;
});
