import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import { listReader } from "../../../src/contracts/lists.js";
import { effectsOf } from "../../../src/notifications/changes.js";
import { deliveryOf } from "../../support/deliveries.js";

test("nobody is told that a list has them as a member: a list is private", () => {
  const effects = (follower_id: string) =>
    effectsOf(
      deliveryOf({
        ...{ stream: "DROPS", subject: "graph.followed", time: Date.now(), seq: 7 },
        json: { follower_id, following_id: "bob", version: 3 },
      }),
    );
  expect(effects("ada").changes).toMatchObject([{ user: "bob", actor: "ada" }]);
  expect(effects(listReader(randomUUID())).changes).toEqual([]);
});
