import { expect, test } from "@jest/globals";
import { Readiness } from "../../../src/roles/service.js";

test("a process that stops says that alone, and not that what it has closed is unavailable", () => {
  const readiness = new Readiness(["gateway"]);
  const notReady = (): string => "gateway: Redis or NATS is unavailable";
  readiness.roles.push({ notReady, close: async () => undefined });
  readiness.waiting = undefined;
  expect(readiness.reasons()).toEqual([notReady()]);
  readiness.waiting = "stopping";
  expect(readiness.reasons()).toEqual(["stopping"]);
});
