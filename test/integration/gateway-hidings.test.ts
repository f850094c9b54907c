import { test } from "@jest/globals";
import type { StreamConfig } from "nats";
import { HIDING_EVENT } from "../../src/contracts/stream-events.js";
import { notifySubject, STREAM } from "../../src/contracts/subjects.js";
import { eventually } from "../support/eventually.js";
import { connection, listen, start } from "../support/gateway.js";

const publish = (body: object) => connection.jetstream().publish(notifySubject("ada"), JSON.stringify(body));
const post = (drop_id: string, by: string) =>
  publish({ event: "new_drop", drop_id, created_at: 1_700_000_000_000, by });
const hide = (user_id: string, hiding: "all" | "reposts" | "none") => publish({ event: HIDING_EVENT, user_id, hiding });

// Invariant 5.
test("what was notified beside a mute is judged again, live and in a resume, until it ends", async () => {
  const running = await start();
  const first = await listen(running, "ada");
  const begin = first.lastId;
  await post("before", "bob");
  await hide("bob", "all");
  await post("late", "bob");
  await post("late repost", "cat,bob");
  await post("other", "cat");
  await first.sees(["before", "other"]);
  const again = await listen(running, "ada", begin);
  await again.sees(["other"]);
  await hide("bob", "none");
  await post("after", "bob");
  await first.sees(["before", "other", "after"]);
  await again.sees(["other", "after"]);
});

// Invariant 5.
test("a mute that has ended hides nothing from a stream, whether anything tells of its end or not", async () => {
  const running = await start();
  const first = await listen(running, "ada");
  const begin = first.lastId;
  await publish({ event: HIDING_EVENT, user_id: "bob", hiding: "all", until: Date.now() + 3_600_000 });
  await publish({ event: HIDING_EVENT, user_id: "cat", hiding: "all", until: Date.now() });
  await post("hidden", "bob");
  await post("shown", "cat");
  await first.sees(["shown"]);
  const again = await listen(running, "ada", begin);
  await again.sees(["shown"]);
});

// Invariant 5.
test("a stream that missed the end of a mute does not hide drops for ever", async () => {
  const running = await start();
  const raw = await listen(running, "ada");
  await hide("bob", "all");
  await post("hidden", "bob");
  await post("other", "cat");
  await raw.sees(["other"]);
  const { streams } = await connection.jetstreamManager();
  const { config } = await streams.info(STREAM.notify);
  await streams.delete(STREAM.notify);
  // The end of the mute was in the stream that is gone.
  await streams.add(config as StreamConfig);
  await eventually(() => raw.resets().length > 0, "a reset");
  await post("shown", "bob");
  await raw.sees(["other", "shown"]);
});
