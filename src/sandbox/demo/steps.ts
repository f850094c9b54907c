import { SUBJECT_OF } from "../../contracts/events.js";
import { STREAM } from "../../contracts/subjects.js";
import { Visibility } from "../../gen/avion/posts.js";
import { GLOBAL, homeOf, LOCAL } from "../../state/index.js";
import { BIG_AUTHOR } from "../world/seed.js";
import { dropsOf } from "../world/world.grpc.js";
import { PEOPLE } from "./people.js";
import {
  countHolding,
  eventually,
  expect,
  holds,
  openStream,
  post,
  readHome,
  request,
  type Stage,
  type Step,
} from "./stage.js";

/** Each call makes the same request. */
const askForAnalysis = (stage: Stage) =>
  request(stage, "/api/v1/timeline/analyze", {
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": '"demo"' },
    body: JSON.stringify({ did: stage.author, type: "full" }),
  });

const BURST = 50;
const GAP = 5;

export const STEPS: readonly Step[] = [
  {
    title: "A cold timeline is rebuilt from the upstreams when it is first read",
    async run(stage) {
      const page = await readHome(stage, 20);
      expect(page.drop_ids.length === 20 && !page.degraded, "the first page is not complete");
      const drops = await dropsOf(stage.sandbox.world, page.drop_ids);
      const authors = new Set(drops.map(({ author }) => author));
      return `20 drops of ${authors.size} authors`;
    },
  },
  {
    title: "A public drop arrives on the stream, in the home, local and global timelines",
    async run(stage) {
      const started = performance.now();
      const drop = await post(stage, stage.author);
      const event = await stage.stream.waitFor("new_drop", drop);
      const took = performance.now() - started;
      const page = await readHome(stage);
      expect(page.drop_ids[0] === drop, "the drop is not on top of the page");
      await eventually("the drop in local", () => holds(stage, LOCAL, drop));
      await eventually("the drop in global", () => holds(stage, GLOBAL, drop));
      return `published to browser in ${took.toFixed(0)} ms, as event ${event.id}`;
    },
  },
  {
    title: "A drop for followers stays out of local",
    async run(stage) {
      const drop = await post(stage, stage.author, Visibility.FOLLOWERS);
      await stage.stream.waitFor("new_drop", drop);
      expect(!(await holds(stage, LOCAL, drop)), "the drop is in local");
      return "in the homes of followers only";
    },
  },
  {
    title: "A deletion takes a drop away, and tells the stream",
    async run(stage) {
      const drop = await post(stage, stage.author);
      await stage.stream.waitFor("new_drop", drop);
      await stage.sandbox.world.posts.deleteDrop({ drop_id: drop, user_id: stage.author });
      await stage.stream.waitFor("drop_deleted", drop);
      for (const key of [homeOf(stage.reader), LOCAL, GLOBAL])
        await eventually(`the drop gone from ${key}`, async () => !(await holds(stage, key, drop)));
      return "gone from the home, local and global timelines";
    },
  },
  {
    title: "A drop of an author with very many followers is written in chunks",
    async run(stage) {
      const { followers } = await stage.sandbox.world.users.getFollowCounts({ user_id: BIG_AUTHOR });
      const started = performance.now();
      const drop = await post(stage, BIG_AUTHOR);
      const count = await eventually(`${followers} timelines`, async () => {
        const landed = await countHolding(stage, drop);
        return landed >= followers + 1 && landed;
      });
      expect(count === followers + 1, `${count} timelines hold it`);
      return `${count} timelines in ${((performance.now() - started) / 1_000).toFixed(2)} s`;
    },
  },
  {
    title: "kill -9 of the worker in the middle of a burst loses nothing",
    async run(stage) {
      const { worker } = stage.sandbox;
      const drops: string[] = [];
      for (let n = 0; n < BURST; n++) {
        drops.push(await post(stage, stage.author));
        if (n === BURST / 2) process.kill(worker.pid() as number, "SIGKILL");
      }
      const key = homeOf(stage.reader);
      // Messages in flight in the dead worker are redelivered after an ack_wait.
      await eventually("every drop of the burst", async () => {
        const scores = await stage.redis.zmscore(key, ...drops);
        return scores.every((score) => score != null);
      });
      for (const drop of drops) await stage.stream.waitFor("new_drop", drop);
      return `${BURST} drops, all there; a new worker has pid ${worker.pid()}`;
    },
  },
  {
    title: "A stream that was cut resumes with nothing missed and nothing twice",
    async run(stage) {
      const lastId = stage.stream.lastId();
      stage.stream.close();
      const drops: string[] = [];
      for (let n = 0; n < GAP; n++) drops.push(await post(stage, stage.author));
      stage.stream = await openStream(stage.sandbox, { reader: stage.reader, lastId });
      for (const drop of drops) await stage.stream.waitFor("new_drop", drop);
      const told = stage.stream.events.filter(({ event }) => event === "new_drop").length;
      expect(told === GAP, `${told} events instead of ${GAP}`);
      return `${GAP} events after ${lastId}`;
    },
  },
  {
    title: "An event on Redis Pub/Sub is bridged into the log once, however often it is published",
    async run(stage) {
      const manager = await stage.nats.jetstreamManager();
      const subject = SUBJECT_OF.ap_drop_received;
      const admitted = async (): Promise<number> => {
        const { state } = await manager.streams.info(STREAM.drops, { subjects_filter: subject });
        return state.subjects?.[subject] ?? 0;
      };
      const before = await admitted();
      const event = { drop_id: "https://far.example/notes/1", created_at: Date.now() };
      for (let time = 0; time < 3; time++) await stage.redis.publish("ap_drop_received", JSON.stringify(event));
      await eventually("the remote drop in global", () => holds(stage, GLOBAL, event.drop_id));
      expect(!(await holds(stage, LOCAL, event.drop_id)), "the remote drop is in local");
      const once = (await admitted()) - before;
      expect(once === 1, `it was admitted ${once} times`);
      return "a remote drop, published three times and admitted once, is in the global timeline";
    },
  },
  {
    title: "A message that cannot be parsed becomes a dead letter, byte for byte",
    async run(stage) {
      await stage.redis.publish("drop_created", "not json");
      const manager = await stage.nats.jetstreamManager();
      const subject = "dlq.invalid.drop_created";
      const deadLetter = await eventually("the dead letter", () =>
        manager.streams.getMessage(STREAM.dlq, { last_by_subj: subject }).catch(() => undefined),
      );
      expect(deadLetter.string() === "not json", "the dead letter's body is not what was published");
      return `${subject}: ${deadLetter.header.get("Dlq-Error")}`;
    },
  },
  {
    title: "An analysis is asked for, done by a worker, and told of on the stream",
    async run(stage) {
      const { status, body } = await askForAnalysis(stage);
      expect(status === 202 && body.status === "queued", `the answer is ${status}`);
      await stage.stream.waitFor("analysis_completed", body.analysis_id);
      const { status: now, results } = (await request(stage, body.status_url)).body;
      expect(results !== undefined && results.posts > 0, `it is ${now} with ${results?.posts ?? "no"} posts`);
      return `${results.posts} posts of ${stage.author}: ${results.flow.posts_per_day} a day`;
    },
  },
  {
    title: "The analysis is rewarded once, however often it is asked for with the same key",
    async run(stage) {
      const { body } = await askForAnalysis(stage);
      const again = await askForAnalysis(stage);
      expect(again.body.analysis_id === body.analysis_id, "the second answer names another analysis");
      await stage.stream.waitFor("xp_earned", body.analysis_id);
      const rewards = (await request(stage, "/api/v1/xp")).body;
      expect(rewards.transactions.length === 1, `there are ${rewards.transactions.length} rewards`);
      return `${rewards.total} XP`;
    },
  },
  ...PEOPLE,
  {
    title: "Redis loses everything, and the next read heals the timeline",
    async run(stage) {
      const before = await readHome(stage, 100);
      await stage.redis.flushall();
      const after = await eventually("the same page as before", async () => {
        const page = await readHome(stage, 100);
        return !page.degraded && page.drop_ids.join() === before.drop_ids.join() && page;
      });
      return `the same ${after.drop_ids.length} drops`;
    },
  },
];
