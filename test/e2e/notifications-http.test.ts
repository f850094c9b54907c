import { expect } from "@jest/globals";
import { TimelineClient } from "../../clients/typescript/src/index.js";
import { NOTIFICATIONS_PATH } from "../../src/contracts/notification-pages.js";
import { call } from "../support/analysis-http.js";
import { openApi } from "../support/api.js";
import { becomes, eventually } from "../support/eventually.js";
import { databaseOf } from "../support/own-database.js";
import { type EventStream, openEvents } from "../support/sse.js";
import { testWithStack } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

const OWN = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
const FANS = ["bob", "cat", "dan", "eve"] as const;

const toldOn = ({ events }: EventStream): string[] =>
  events.flatMap(({ event, data }) => (event === "notification" ? String(data["id"]) : []));

testWithStack(
  "a gateway beside the role, or with its address, serves notifications; a stream resumes with those that it missed, each once",
  { service: false, timeoutMs: 120_000 },
  async (stack) => {
    const roles = "users,posts,fanout,notifications,gateway";
    const service = await stack.start({ roles, env: { ...OWN, ...(await databaseOf(stack)) } });
    const address = { TIMELINE_NOTIFICATION_SERVICE_ADDR: service.grpcAddress };
    const gateway = await stack.start({ roles: "gateway", env: { ...OWN, ...address } });
    const without = await stack.start({ roles: "gateway", env: OWN });
    const api = openApi(service.grpcAddress);
    stack.defer(() => api.close());
    const read = async (query = "", { httpUrl } = gateway) =>
      (await call(`${httpUrl}${NOTIFICATIONS_PATH}${query}`, { user: "ada" })).body;
    const idsOf = async (query = "", from = gateway): Promise<string[]> =>
      (await read(query, from)).notifications.map(({ id }: { id: string }) => id);

    const stream = await openEvents(gateway.httpUrl, "ada");
    const [first, ...later] = await Promise.all(FANS.map(() => api.post("ada")));
    const like = (drop: typeof first, user_id: string) => api.like({ drop_id: drop?.drop_id ?? "", user_id });
    await like(first, "bob");
    await eventually(() => toldOn(stream).length === 1, "the like is told");
    const [told] = stream.events.filter(({ event }) => event === "notification");
    expect((await read()).notifications).toEqual([told?.data]);
    expect(told?.data).toMatchObject({ kind: "LIKE", actor_id: "bob", drop_id: first?.drop_id });
    stream.close();

    for (const [n, drop] of later.entries()) await like(drop, FANS[n + 1] as string);
    await api.follow({ follower_id: "bob", following_id: "ada" });
    await becomes(async () => expect(await idsOf()).toHaveLength(5));
    const resumed = await openEvents(gateway.httpUrl, "ada", stream.lastId());
    const other = await openEvents(service.httpUrl, "ada");
    const all = await idsOf();
    await eventually(() => toldOn(resumed).length === 4, "all that was missed is told");
    expect(toldOn(resumed).sort()).toEqual(all.slice(0, 4).sort());
    expect(resumed.events.some(({ event }) => event === "reset")).toBe(false);
    expect(await idsOf("", service)).toEqual(all);
    expect(await idsOf("?kinds=FOLLOW")).toHaveLength(1);
    const page = await read("?limit=2");
    expect([page.has_more, await idsOf(`?limit=3&max_id=${page.next_max_id}`)]).toEqual([true, all.slice(2)]);

    const unread = () => read("/unread");
    expect(await unread()).toEqual({ count: 5, newest_id: all[0] });
    const mark = async (up_to_id: string | undefined) =>
      (await call(`${gateway.httpUrl}${NOTIFICATIONS_PATH}/read`, { user: "ada", method: "POST", body: { up_to_id } }))
        .body;
    expect(await mark(all[2])).toEqual({ changed: true });
    expect(await mark(all[4])).toEqual({ changed: false });
    for (const open of [resumed, other])
      expect((await open.waitFor("notifications_read")).data).toEqual({ up_to_id: all[2] });
    expect(await unread()).toEqual({ count: 2, newest_id: all[0] });
    const client = new TimelineClient({ url: gateway.httpUrl, token: () => tokenOf("ada") });
    const asked = await client.notifications({ limit: 2, kinds: ["LIKE", "FOLLOW"] });
    expect(asked).toEqual(await read("?limit=2&kinds=LIKE,FOLLOW"));
    expect((await client.notifications({ kinds: [] })).notifications).toHaveLength(5);
    await client.markRead(all[0] as string);
    expect(await client.unread()).toEqual({ count: 0, newest_id: all[0] });
    const bad = await call(`${gateway.httpUrl}${NOTIFICATIONS_PATH}?max_id=x`, { user: "ada" });
    expect([bad.status, JSON.stringify(bad.body)]).toEqual([400, expect.stringContaining("max_id")]);
    const bobs = await call(`${gateway.httpUrl}${NOTIFICATIONS_PATH}`, { user: "bob" });
    expect(bobs.body.notifications).toEqual([]);
    const headers = { authorization: `Bearer ${await tokenOf("ada")}` };
    expect((await fetch(`${without.httpUrl}${NOTIFICATIONS_PATH}`, { headers })).status).toBe(404);
    const paths = async ({ httpUrl }: typeof gateway): Promise<string[]> =>
      Object.keys(((await (await fetch(`${httpUrl}/openapi.json`)).json()) as { paths: object }).paths);
    expect([await paths(gateway), await paths(without)]).toEqual([
      expect.arrayContaining([NOTIFICATIONS_PATH]),
      expect.not.arrayContaining([NOTIFICATIONS_PATH]),
    ]);
    for (const open of [resumed, other]) open.close();
  },
);

testWithStack(
  "a stream does not resume with notifications of somebody whom its user blocked meanwhile",
  { service: false, timeoutMs: 120_000 },
  async (stack) => {
    const roles = "users,posts,fanout,notifications,gateway";
    const service = await stack.start({ roles, env: { ...OWN, ...(await databaseOf(stack)) } });
    const api = openApi(service.grpcAddress);
    stack.defer(() => api.close());
    const stream = await openEvents(service.httpUrl, "ada");
    const position = stream.lastId();
    const { drop_id } = await api.post("ada");
    await api.follow({ follower_id: "bob", following_id: "ada" });
    await eventually(() => toldOn(stream).length === 1, "the follow is told");
    await api.block({ user_id: "ada", target_id: "bob" });
    await api.like({ drop_id, user_id: "cat" });
    await eventually(() => toldOn(stream).length === 2, "the like is told");
    stream.close();
    const resumed = await openEvents(service.httpUrl, "ada", position);
    const told = await resumed.waitFor("notification");
    expect([told.data["actor_id"], toldOn(resumed)]).toEqual(["cat", [told.data["id"]]]);
    resumed.close();
  },
);
