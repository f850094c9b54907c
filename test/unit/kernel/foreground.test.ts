import { expect, test } from "@jest/globals";
import { Foreground } from "../../../src/kernel/foreground.js";
import { DAY } from "../../../src/kernel/time.js";

function opened() {
  let end = (): void => undefined;
  const until = new Promise<void>((resolve) => {
    end = resolve;
  });
  return { until, end };
}

test("background work begins at once while no foreground work is under way", async () => {
  await new Foreground(DAY).untilIdle();
});

test("background work begins once all foreground work has ended, also where it fails", async () => {
  const foreground = new Foreground(DAY);
  const [one, two] = [opened(), opened()];
  const order: string[] = [];
  const first = foreground.run(async () => {
    await one.until;
    order.push("foreground");
  });
  const failing = foreground.run(async () => {
    await two.until;
    order.push("failing");
    throw new Error("broken");
  });
  const background = [1, 2].map(() => foreground.untilIdle().then(() => order.push("background")));
  one.end();
  await first;
  two.end();
  await expect(failing).rejects.toThrow("broken");
  await Promise.all(background);
  expect(order).toEqual(["foreground", "failing", "background", "background"]);
  await foreground.untilIdle();
});

test("background work begins after a while, however long foreground work takes", async () => {
  const foreground = new Foreground(1);
  const { until, end } = opened();
  const first = foreground.run(() => until);
  await foreground.untilIdle();
  await foreground.untilIdle();
  end();
  await first;
});
