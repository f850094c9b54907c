import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "@jest/globals";
import { Standing } from "../../src/gen/avion/users.js";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { openEvents, requestEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

const OWN = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
const ROLES = "users,posts,bridge,fanout,api,gateway";

/** The service on its own users and posts. */
async function openScene(stack: Stack) {
  const folder = await temporaryFolder("data");
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const service = await stack.start({ roles: ROLES, env: { ...OWN, TIMELINE_DATA_DIR: join(folder, "data") } });
  const [api, reads] = [openApi(service.grpcAddress), openReader(service.grpcAddress)];
  stack.defer(() => api.close());
  stack.defer(() => reads.close());
  return { service, api, reads };
}

// Invariant 5.
testWithStack(
  "who is limited or suspended is in no local page, the suspended are refused and their streams end, and all is back afterwards",
  { service: false },
  async (stack) => {
    const { service, api, reads } = await openScene(stack);
    const local = (user_id: string) => reads.local({ user_id, limit: 100 });
    const shows = (user: string, drop_ids: readonly string[]) =>
      becomes(async () => expect(await local(user)).toMatchObject({ drop_ids, degraded: false }));
    const post = async (user: string) => (await api.post(user)).drop_id;
    const statusOf = async (): Promise<number> => {
      const answer = await requestEvents(service.httpUrl, { token: await tokenOf("ada") });
      answer.close();
      return answer.status;
    };
    const [adas, bobs, cats] = [await post("ada"), await post("bob"), await post("cat")];
    await shows("", [cats, bobs, adas]);
    const streams = [await openEvents(service.httpUrl, "ada"), await openEvents(service.httpUrl, "bob")];

    await api.setStanding({ user_id: "ada", standing: Standing.SUSPENDED, reason: "spam" });
    await api.setStanding({ user_id: "bob", standing: Standing.LIMITED });
    await shows("", [cats]);
    await shows("cat", [cats]);
    await shows("bob", [cats, bobs]);
    await eventually(() => streams[0]?.isOver() ?? false, "the end of the stream");
    expect(streams[1]?.isOver()).toBe(false);
    expect(await statusOf()).toBe(403);
    await expect(post("ada")).rejects.toThrow(/FAILED_PRECONDITION: user_id: is suspended/);
    await expect(api.getDrop({ drop_id: adas })).rejects.toThrow(/NOT_FOUND/);
    await expect(api.like({ drop_id: adas, user_id: "cat" })).rejects.toThrow(/NOT_FOUND/);
    expect((await api.getDrop({ drop_id: bobs, viewer_id: "cat" })).drop?.drop_id).toBe(bobs);

    await api.setStanding({ user_id: "ada", standing: Standing.ACTIVE });
    await api.setStanding({ user_id: "bob", standing: Standing.LIMITED, until: Date.now() + 2_000 });
    await shows("", [cats, bobs, adas]);
    expect((await api.getDrop({ drop_id: adas })).drop?.drop_id).toBe(adas);
    expect(await statusOf()).toBe(200);
    expect(await stack.streams.count("DLQ")).toBe(0);
    for (const stream of streams) stream.close();
  },
);

testWithStack("operators set, list and show standings", { service: false }, async (stack) => {
  const { service } = await openScene(stack);
  const run = (...words: string[]) =>
    jsonOf(stack, ["standing", ...words], { env: { TIMELINE_USER_SERVICE_ADDR: service.grpcAddress } });
  const spam = { host: "spam.example", standing: "suspended", until: null, reason: "wave", by: "" };
  expect(await run("set", "spam.example", "suspended", "--reason", "wave")).toMatchObject({ ...spam, changed: true });
  expect(await run("set", "ada", "limited", "--until", "2h", "--by", "op")).toMatchObject({ user_id: "ada", by: "op" });
  expect(await run("ls")).toMatchObject([spam, { user_id: "ada", standing: "limited" }]);
  expect(await run("show", "https://a.spam.example/u/1")).toMatchObject(spam);
  expect(await run("set", "ada", "active")).toMatchObject({ standing: "active", changed: true });
  expect(await run("show", "ada")).toMatchObject({ user_id: "ada", standing: "active" });
});
