import { credentials } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { NotificationServiceClient, NotificationServiceService } from "../../src/gen/avion/notifications.js";
import { Visibility } from "../../src/gen/avion/posts.js";
import { connectWorld } from "../../src/sandbox/world/world.grpc.js";
import { startCommand } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { callsOf } from "../support/grpc.js";
import { inWords } from "../support/notifications.js";
import { databaseOf } from "../support/own-database.js";
import { postgresPrograms } from "../support/postgres.js";
import { type EventStream, openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { Supervisor } from "../support/supervisor.js";

const OWN = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "", TIMELINE_ACK_WAIT_MS: "3500" };
const OTHERS = "users,posts,bridge,fanout,api,gateway";

function open(stack: Stack, address: string) {
  const world = connectWorld(address);
  stack.defer(() => world.close());
  return {
    ...world,
    post: async (user_id: string, more: object = {}): Promise<string> =>
      (await world.posts.createDrop({ user_id, visibility: Visibility.PUBLIC, body: "Hello", ...more })).drop
        ?.drop_id ?? "",
  };
}

function notificationsAt(stack: Stack, address: string) {
  const client = new NotificationServiceClient(address, credentials.createInsecure());
  stack.defer(() => client.close());
  return callsOf(client, NotificationServiceService);
}

const toldOn = (stream: EventStream) => stream.events.filter(({ event }) => event === "notification");

testWithStack(
  "people are notified of what others do, on the stream and in the list, until it is taken back or the actor is erased",
  { service: false, timeoutMs: 120_000 },
  async (stack) => {
    const env = { ...OWN, ...(await databaseOf(stack)) };
    const service = await stack.start({ roles: `${OTHERS},notifications`, env });
    const { users, posts, post } = open(stack, service.grpcAddress);
    const notifications = notificationsAt(stack, service.grpcAddress);
    const list = async () => inWords(await notifications.listNotifications({ user_id: "ada" }));
    await users.setProfile({ user_id: "ada", display_name: "Ada", approves_followers: true });
    const stream = await openEvents(service.httpUrl, "ada");
    const drop = await post("ada");
    await posts.likeDrop({ drop_id: drop, user_id: "bob" });
    await eventually(() => toldOn(stream).length === 1, "the like is told");
    await users.follow({ follower_id: "bob", following_id: "ada" });
    await becomes(async () => expect(await list()).toEqual(["FOLLOW_REQUEST bob", `LIKE bob ${drop}`]));
    await users.acceptFollow({ user_id: "ada", follower_id: "bob" });
    await becomes(async () => expect(await list()).toEqual(["FOLLOW bob", `LIKE bob ${drop}`]));
    await posts.shareDrop({ drop_id: drop, user_id: "cat" });
    const reply = await post("cat", { reply_to: drop, mentions: ["ada"] });
    const mention = await post("dan", { mentions: ["ada"] });
    const all = [
      `MENTION dan ${mention}`,
      `REPLY cat ${reply}`,
      `REPOST cat ${drop}`,
      "FOLLOW bob",
      `LIKE bob ${drop}`,
    ];
    await becomes(async () => expect((await list()).sort()).toEqual([...all].sort()));
    await eventually(() => toldOn(stream).length === 6, "all are told");
    const kinds = ["FOLLOW", "FOLLOW_REQUEST", "LIKE", "MENTION", "REPLY", "REPOST"];
    expect(
      toldOn(stream)
        .map(({ data }) => String(data["kind"]))
        .sort(),
    ).toEqual(kinds);

    await posts.unlikeDrop({ drop_id: drop, user_id: "bob" });
    await posts.unshareDrop({ drop_id: drop, user_id: "cat" });
    await posts.deleteDrop({ drop_id: mention, user_id: "dan" });
    await becomes(async () => expect(await list()).toEqual([`REPLY cat ${reply}`, "FOLLOW bob"]));
    await users.mute({ user_id: "ada", target_id: "cat" });
    await becomes(async () => expect(await list()).toEqual(["FOLLOW bob"]));
    await users.unmute({ user_id: "ada", target_id: "cat" });
    await becomes(async () => expect(await list()).toEqual([`REPLY cat ${reply}`, "FOLLOW bob"]));

    const command = { ...env, TIMELINE_USER_SERVICE_ADDR: service.grpcAddress };
    for (const user of ["bob", "ada"]) {
      expect((await startCommand(stack, ["erase", "user", user, "--yes"], command).exited).code).toBe(0);
      const status = async () => (await users.getErasure({ user_id: user })).erasure;
      await eventually(async () => (await status())?.status === "completed", "the erasure is completed", 30_000);
      expect((await status())?.steps.map(({ name }) => name)).toContain("notifications");
      if (user === "bob") expect(await list()).toEqual([`REPLY cat ${reply}`]);
    }
    expect(await list()).toEqual([]);
    if (postgresPrograms() === undefined) return;
    const verify = startCommand(stack, ["erase", "verify", "ada"], command);
    expect([(await verify.exited).code, verify.output()]).toEqual([0, expect.anything()]);
  },
);

if (postgresPrograms() !== undefined)
  testWithStack(
    "a kill at any step loses no notification, and counts no like twice",
    { service: false, timeoutMs: 240_000, slow: true },
    async (stack) => {
      const env = { ...OWN, ...(await databaseOf(stack)), TIMELINE_RETRY_BASE_MS: "50" };
      const service = await stack.start({ roles: OTHERS, env });
      const { posts, post } = open(stack, service.grpcAddress);
      const supervisor = new Supervisor(stack);
      stack.defer(() => supervisor.stopAll());
      const steps = [
        "handle",
        "notification-written",
        "notification-deferred",
        "notification-published",
        "handled",
        "acked",
      ];
      await supervisor.start({
        roles: "notifications",
        env: { ...env, TIMELINE_USER_SERVICE_ADDR: service.grpcAddress },
        failpoints: steps.map((step) => `${step}=kill%0.04`).join(","),
        deathsMax: 8,
      });
      const stream = await openEvents(service.httpUrl, "ada");
      const drops = [await post("ada"), await post("ada")];
      const mentions: string[] = [];
      for (let round = 0; round < 15; round++) {
        mentions.push(await post("cat", { mentions: ["ada"], body: `Round ${round}` }));
        await Promise.all(
          drops.flatMap((drop_id) =>
            Array.from({ length: 20 }, (_, fan) => posts.likeDrop({ drop_id, user_id: `fan-${round}-${fan}` })),
          ),
        );
        await eventually(() => supervisor.running.length > 0, "a process runs");
      }
      const countOf = (drop: string): number =>
        toldOn(stream)
          .filter(({ data }) => data["kind"] === "LIKE" && data["drop_id"] === drop)
          .reduce((sum, { data }) => sum + Number(data["count"] ?? 1), 0);
      await eventually(() => drops.every((drop) => countOf(drop) >= 300), "all likes are told", 90_000);
      await becomes(async () => {
        const [running] = supervisor.running;
        const notifications = notificationsAt(stack, running?.grpcAddress ?? "");
        const shown: string[] = [];
        let max_id = "";
        for (let more = true; more; ) {
          const page = await notifications.listNotifications({ user_id: "ada", limit: 100, max_id });
          shown.push(...inWords(page));
          [more, max_id] = [page.has_more, page.next_max_id];
        }
        expect(new Set(shown).size).toBe(shown.length);
        expect(shown.filter((words) => words.startsWith("LIKE"))).toHaveLength(600);
        expect(shown.filter((words) => words.startsWith("MENTION"))).toHaveLength(mentions.length);
      }, 60_000);
      const told = toldOn(stream).filter(({ data }) => data["kind"] === "MENTION");
      expect(told.map(({ data }) => String(data["drop_id"])).sort()).toEqual([...mentions].sort());
      expect(drops.map(countOf)).toEqual([300, 300]);
      expect(supervisor.deaths).toBeGreaterThan(0);
      // Nobody follows ada and cat, so that these are jobs of notifications.
      expect((await stack.streams.manager.streams.info("FANOUT")).state.last_seq).toBeGreaterThan(0);
    },
  );
