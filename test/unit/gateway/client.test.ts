import { expect, test } from "@jest/globals";
import type { PartFeed } from "../../../src/gateway/feed.nats.js";
import type { Notification } from "../../../src/gateway/notification.js";
import type { SentEvents } from "../../../src/gateway/observe.js";
import { StreamClient } from "../../../src/gateway/session/client.js";
import { Position } from "../../../src/gateway/session/position.js";

const hiding = (target: string): Notification => ({ seq: 1, check: "", hiding: { target, hiding: "all" } });
const drop = (by: string): Notification => ({
  ...{ seq: 1, check: "" },
  content: { event: "new_drop", data: "{}", key: `new_drop\n${by}`, by },
});

// Invariant 11.
test("a stream keeps the newest changed relations, as many as NOTIFY has messages of a user", () => {
  const written: string[] = [];
  const position = new Position({ feed: {} as PartFeed, listing: "l" });
  const sentEvents = { add: () => undefined } as unknown as SentEvents;
  const client = new StreamClient("ada", position, { sentEvents, standings: { of: () => "active", size: 0 } });
  client.connect({ write: (block) => void written.push(String(block)), drained: async () => undefined });
  for (let number = 0; number < 10_000; number++) client.noteHiding(hiding(`user-${number}`));
  client.noteHiding(hiding("user-9871"));
  client.noteHiding(hiding("last"));
  for (const by of ["user-9871", "user-9900", "last"]) client.send(drop(by), false);
  expect(written).toHaveLength(0);
  for (const by of ["user-0", "user-9000"]) client.send(drop(by), false);
  expect(written).toHaveLength(2);
});
