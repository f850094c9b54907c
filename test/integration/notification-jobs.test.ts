import { expect, test } from "@jest/globals";
import { parseNotificationJob } from "../../src/contracts/notification-jobs.js";
import { STREAM } from "../../src/contracts/subjects.js";
import { LOG_AGE_MS } from "../../src/contracts/times.js";
import { MINUTE } from "../../src/kernel/time.js";
import { contextWith, deliveryOf } from "../support/deliveries.js";
import { eventually } from "../support/eventually.js";
import { describeNotifications, inWords } from "../support/notifications.js";

const MANY = 21;
const numbers = Array.from({ length: MANY }, (_, number) => number);

describeNotifications("jobs of notifications", (scene) => {
  const { own } = scene;
  const words = async (user: string) => inWords(await scene.bench.list(user, { limit: 100 }));

  test("what notifies one user more than twenty times in a batch becomes one job, and others are told before it is done", async () => {
    const { bench } = scene;
    const likes = numbers.map((fan) => bench.like("s1", "star", `fan${fan}`, 1));
    const mention = bench.logged("drop_created", { drop_id: "b1", user_id: "bob", mentions: ["ada", "star"] });
    const jobs = await bench.queued(...likes, bench.like("a1", "ada", "bob", 1), mention);
    expect(await words("ada")).toEqual(["LIKE bob a1", "MENTION bob b1"]);
    expect(await words("star")).toEqual([]);
    expect(jobs).toHaveLength(1);
    await bench.handleJobs(jobs);
    expect(await words("star")).toEqual(["MENTION bob b1", ...numbers.map((fan) => `LIKE fan${fan} s1`).toReversed()]);
  });

  test("twenty notifications of one user in a batch make no job", async () => {
    const { bench } = scene;
    expect(await bench.queued(...numbers.slice(1).map((fan) => bench.like("s1", "star", `fan${fan}`, 1)))).toEqual([]);
    expect(await words("star")).toHaveLength(MANY - 1);
  });

  // Invariant 3.
  test("a job that comes twice, after newer events and beside its own events, tells nobody twice and brings nothing back", async () => {
    const { bench } = scene;
    const star = own("star");
    await bench.listen(star);
    const drop = own("s1");
    const likes = numbers.map((fan) => bench.like(drop, star, `fan${fan}`, 1));
    const jobs = await bench.queued(...likes);
    await bench.handle(bench.like(drop, star, "fan0", 2));
    await bench.handleJobs(jobs);
    await bench.handleJobs(jobs);
    // A process that dies before its acks leaves both.
    for (const like of likes) await bench.running.handlers.events.single(like, contextWith());
    expect(await words(star)).toHaveLength(MANY - 1);
    const countOf = async (): Promise<number> =>
      (await bench.told(star)).reduce((sum, { count = 1 }) => sum + (count as number), 0);
    await eventually(async () => (await countOf()) >= MANY - 1, "the others are told");
    expect(await countOf()).toBe(MANY - 1);
  });

  test("a job whose drop was deleted, and whose user was erased meanwhile, leaves nothing", async () => {
    const { bench } = scene;
    const jobs = [
      ...(await bench.queued(...numbers.map((fan) => bench.like("s1", "star", `fan${fan}`, 1)))),
      ...(await bench.queued(...numbers.map((fan) => bench.like("e1", "erin", `fan${fan}`, 1)))),
    ];
    await bench.handle(bench.logged("drop_deleted", { drop_id: "s1", user_id: "star" }));
    await bench.running.forget("erin", { stopping: new AbortController().signal, left: async () => undefined });
    await bench.handleJobs(jobs);
    expect([await words("star"), await words("erin")]).toEqual([[], []]);
  });

  test("what is older than the log in a job tells nobody: nothing shows any more that its drop was deleted", async () => {
    const { bench } = scene;
    const likes = numbers.map((fan) => bench.like("s1", "star", `fan${fan}`, 1));
    const aged = (await bench.queued(...likes)).map((job) => {
      const changes = parseNotificationJob(Buffer.from(job.body)).changes.map((change) => {
        const at = Date.now() - LOG_AGE_MS + (change.actor === "fan7" ? MINUTE : -MINUTE);
        return { ...change, at };
      });
      return { ...job, body: JSON.stringify({ changes }) };
    });
    await bench.handleJobs(aged);
    expect(await words("star")).toEqual(["LIKE fan7 s1"]);
  });

  test("a batch whose jobs NATS does not take fails, and its messages are handled alone without jobs", async () => {
    const { bench } = scene;
    const likes = numbers.map((fan) => bench.like("s1", "star", `fan${fan}`, 1));
    bench.refuseJobs();
    await expect(bench.queued(...likes)).rejects.toMatchObject({ code: "unavailable" });
    for (const like of likes) await bench.running.handlers.events.single(like, contextWith());
    expect(await words("star")).toHaveLength(MANY);
  });

  test("a job that cannot be understood is left for its own handling, and the error names the field", async () => {
    const job = deliveryOf({ stream: STREAM.fanout, subject: "fanout.notifications.1", json: { changes: [{}] } });
    const { batch, single } = scene.bench.running.handlers.jobs;
    expect(await batch([job], contextWith())).toEqual([job]);
    await expect(async () => single(job, contextWith())).rejects.toThrow(/changes\.0\.user/);
  });
});
