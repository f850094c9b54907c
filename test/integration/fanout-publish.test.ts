import { expect, test } from "@jest/globals";
import type { EdgeJob, FanoutCompleted, FanoutJob } from "../../src/contracts/fanout.js";
import {
  createComplete,
  createPublishNotifications,
  createQueueEdges,
  createQueueJobs,
} from "../../src/fanout/publish.nats.js";
import { AppError } from "../../src/kernel/errors.js";
import { natsOfFile } from "../support/nats-of-file.js";

const nats = natsOfFile();

const codeOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => "stored",
    (error: unknown) => (error instanceof AppError ? error.code : String(error)),
  );
const numberIn = async (stream: string) => (await nats.manager.streams.info(stream)).state.messages;

const times = { created_at: 1_000, admitted_at: 1_000 };
const drop = { event: "drop_created", drop_id: "d1", user_id: "ada", ...times } as const;
const jobs = ["f1", "f2"].map((user): FanoutJob => ({ ...drop, action: "add", generation: "", user_ids: [user] }));
const edges = [1, 2].map((version): EdgeJob => {
  return { following_id: "ada", admitted_at: 1_000, edges: [{ follower_id: "bob", version, follows: true }] };
});
const completed: FanoutCompleted = { ...drop, recipients: 1, chunks: 1, landed_at: 1_000, lag_ms: 0 };
const notification = { event: "drop_deleted", drop_id: "d1" } as const;

// Invariant 2.
test.each([
  ["jobs", () => createQueueJobs(nats.publishAll)(jobs)],
  ["edges of a hot user", () => createQueueEdges(nats.publishAll)(edges)],
])("one of two that the queue does not take is a failure: %s", async (_, queue) => {
  const { config } = await nats.manager.streams.info("FANOUT");
  await nats.manager.streams.purge("FANOUT");
  await nats.manager.streams.update("FANOUT", { ...config, max_msgs: 1 });
  expect([await codeOf(queue()), await numberIn("FANOUT")]).toEqual(["unavailable", 1]);
  await nats.manager.streams.update("FANOUT", config);
  expect([await codeOf(queue()), await numberIn("FANOUT")]).toEqual(["stored", 2]);
});

// Invariant 2.
test.each([
  ["NOTIFY", () => createPublishNotifications(nats.publishAll)([{ seeing: ["bob"], unknown: [], notification }])],
  ["CHECKS", () => createComplete(nats.publishAll, (all) => new Set(all))([{ completed }])],
  ["COMPLETIONS", () => createComplete(nats.publishAll, () => new Set())([{ completed }])],
])("what %s does not store is a failure", async (stream, publish) => {
  expect(await codeOf(publish())).toBe("stored");
  await nats.manager.streams.delete(stream);
  expect(await codeOf(publish())).toBe("unavailable");
});
