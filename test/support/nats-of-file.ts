import { afterAll, beforeAll } from "@jest/globals";
import { type NatsBench, openNats } from "./nats.js";
import { openStreams, type Streams } from "./streams.js";

/** The nats-server of a test file and its streams, there from its first test on; its fields are set by then. */
export function natsOfFile(): NatsBench & { readonly streams: Streams } {
  const bench = {} as NatsBench & { streams: Streams };
  beforeAll(async () => {
    Object.assign(bench, await openNats());
    bench.streams = await openStreams(bench.broker.url);
  });
  afterAll(async () => {
    await bench.streams.close();
    await bench.close();
  });
  return bench;
}
