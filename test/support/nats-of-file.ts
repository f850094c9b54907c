import { afterAll, beforeAll } from "@jest/globals";
import { type NatsBench, openNats } from "./nats.js";

/** The nats-server of a test file, there from its first test on; its fields are set by then. */
export function natsOfFile(): NatsBench {
  const bench = {} as NatsBench;
  beforeAll(async () => void Object.assign(bench, await openNats()));
  afterAll(() => bench.close());
  return bench;
}
