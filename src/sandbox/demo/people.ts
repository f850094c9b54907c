import { type ServiceError, status } from "@grpc/grpc-js";
import { Visibility } from "../../gen/avion/posts.js";
import { Standing } from "../../gen/avion/users.js";
import { LOCKED_AUTHOR } from "../world/seed.js";
import { eventually, expect, openStream, post, readHome, request, type Step } from "./stage.js";

const STRANGER = "konrad";

/** The steps about whom a user sees: blocks, approval, lists, replies, reposts, suspensions. */
export const PEOPLE: readonly Step[] = [
  {
    title: "A block empties a page and a stream, and an unblock does not restore the follow",
    async run(stage) {
      const { users, timelines } = stage.sandbox.world;
      const pair = { user_id: stage.reader, target_id: stage.author };
      const edge = { follower_id: stage.reader, following_id: stage.author };
      const before = await post(stage, stage.author);
      await stage.stream.waitFor("new_drop", before);
      await users.block(pair);
      const local = () => timelines.getLocalTimeline({ user_id: stage.reader });
      await eventually("pages without the author", async () => {
        const pages = await Promise.all([readHome(stage, 100), local()]);
        return pages.every(({ drop_ids, degraded }) => !degraded && !drop_ids.includes(before));
      });
      const hidden = await post(stage, stage.author);
      await stage.stream.waitFor("new_drop", await post(stage, stage.reader));
      const isTold = stage.stream.events.some(({ data }) => data.includes(JSON.stringify(hidden)));
      expect(!isTold, "the stream has the drop of a blocked author");
      await users.unblock(pair);
      const { following } = await users.isFollowing({ follower_id: stage.reader, following_ids: [stage.author] });
      expect(following[0] === false, "the unblock has restored the follow");
      await users.follow(edge);
      await eventually("the drops of the author back in the home", async () => {
        const { drop_ids } = await readHome(stage, 100);
        return [before, hidden].every((drop) => drop_ids.includes(drop));
      });
      return "hidden in the home, local and the stream; back after an unblock and a new follow";
    },
  },
  {
    title: "A follow of somebody who approves followers waits until it is accepted",
    async run(stage) {
      const { users } = stage.sandbox.world;
      const { pending } = await users.follow({ follower_id: stage.reader, following_id: LOCKED_AUTHOR });
      expect(pending, "the follow is no request");
      const drop = await post(stage, LOCKED_AUTHOR, Visibility.FOLLOWERS);
      await stage.stream.waitFor("new_drop", await post(stage, stage.author));
      expect(!(await readHome(stage, 100)).drop_ids.includes(drop), "the drop is in the home before");
      await users.acceptFollow({ user_id: LOCKED_AUTHOR, follower_id: stage.reader });
      await eventually("the drop in the home", async () => (await readHome(stage, 100)).drop_ids.includes(drop));
      return "the drop for followers is in the home once the request is accepted";
    },
  },
  {
    title: "A list shows the drops of a member whom its owner does not follow, live, until the member is removed",
    async run(stage) {
      const { lists, timelines } = stage.sandbox.world;
      const older = await post(stage, STRANGER);
      const { list } = await lists.createList({ user_id: stage.reader, title: "Strangers" });
      const asked = { user_id: stage.reader, list_id: list?.list_id as string };
      const stream = await openStream(stage.sandbox, { reader: stage.reader, timeline: `list/${asked.list_id}` });
      try {
        await lists.addListMembers({ ...asked, member_ids: [STRANGER] });
        const drops = async () => (await timelines.getListTimeline(asked)).drop_ids;
        await eventually("the older drop in the list", async () => (await drops()).includes(older));
        const drop = await post(stage, STRANGER);
        await stream.waitFor("new_drop", drop);
        await eventually("the new drop in the list", async () => (await drops())[0] === drop);
        expect(!(await readHome(stage, 100)).drop_ids.includes(drop), "the drop is in the home");
        await lists.removeListMembers({ ...asked, member_ids: [STRANGER] });
        await eventually("an empty list", async () => (await drops()).length === 0);
        return `drops of ${STRANGER}: in the list and on its stream, not in the home`;
      } finally {
        stream.close();
      }
    },
  },
  {
    title: "A reply to a stranger comes with the follow of the stranger, and a drop and its reposts stand once",
    async run(stage) {
      const { users, posts } = stage.sandbox.world;
      const parent = await post(stage, STRANGER);
      const reply = await post(stage, stage.author, Visibility.PUBLIC, parent);
      await stage.stream.waitFor("new_drop", await post(stage, stage.author));
      expect(!(await readHome(stage, 100)).drop_ids.includes(reply), "the reply to a stranger is in the home");
      await users.follow({ follower_id: stage.reader, following_id: STRANGER });
      await eventually("the reply in the home", async () => (await readHome(stage, 100)).drop_ids.includes(reply));
      const original = await post(stage, stage.author);
      const sharers = [LOCKED_AUTHOR, STRANGER];
      const reposts: string[] = [];
      for (const user_id of sharers) {
        const { repost_id } = await posts.shareDrop({ drop_id: original, user_id });
        await stage.stream.waitFor("new_drop", repost_id);
        reposts.push(repost_id);
      }
      const shown = (await readHome(stage)).items.filter(({ drop_id }) => [original, ...reposts].includes(drop_id));
      expect(shown.length === 1, `the drop stands ${shown.length} times`);
      const reposters = shown[0]?.reposted_by.join(" and ");
      expect(reposters === sharers.toReversed().join(" and "), `it was reposted by ${reposters}`);
      return `one item in place of three, reposted by ${reposters}`;
    },
  },
  {
    title: "A like notifies the author of the drop, on the stream and over HTTP, until it is taken back",
    async run(stage) {
      const { posts } = stage.sandbox.world;
      const like = { drop_id: await post(stage, stage.reader), user_id: STRANGER };
      await posts.likeDrop(like);
      const { data } = await stage.stream.waitFor("notification", like.drop_id);
      const { id: up_to_id } = JSON.parse(data) as { readonly id: string };
      const isListed = async (): Promise<boolean> =>
        (await request(stage, "/api/v1/notifications?kinds=LIKE")).body.notifications.some(({ id }) => id === up_to_id);
      expect(await isListed(), "the list lacks the notification");
      const { count } = (await request(stage, "/api/v1/notifications/unread")).body;
      expect(count > 0, "nothing is unread");
      await request(stage, "/api/v1/notifications/read", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ up_to_id }),
      });
      await stage.stream.waitFor("notifications_read", up_to_id);
      await posts.unlikeDrop(like);
      await eventually("the notification is taken back", async () => !(await isListed()));
      return `${stage.reader} is told that ${STRANGER} likes a drop, has read it, and no longer finds it`;
    },
  },
  {
    title: "A suspension hides an account's drops and refuses its writes, and is lifted without a trace",
    async run(stage) {
      const { users, timelines } = stage.sandbox.world;
      const { author: user_id, reader } = stage;
      const drop = await post(stage, user_id);
      await stage.stream.waitFor("new_drop", drop);
      const before = (await readHome(stage, 100)).drop_ids;
      await users.setStanding({ user_id, standing: Standing.SUSPENDED, reason: "spam", by: "demo" });
      await eventually("pages without the suspended author", async () => {
        const pages = await Promise.all([readHome(stage, 100), timelines.getLocalTimeline({ user_id: reader })]);
        return pages.every(({ drop_ids, degraded }) => !degraded && !drop_ids.includes(drop));
      });
      const refusal = await post(stage, user_id).catch((error: ServiceError) => error.code);
      expect(refusal === status.FAILED_PRECONDITION, `a post of the suspended author ends with ${refusal}`);
      await users.setStanding({ user_id, standing: Standing.ACTIVE });
      await eventually("the same home as before", async () => {
        const { drop_ids, degraded } = await readHome(stage, 100);
        return !degraded && drop_ids.join() === before.join();
      });
      return `the drops of ${user_id} are gone, and all back`;
    },
  },
];
