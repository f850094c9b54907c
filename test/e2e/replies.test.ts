import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "@jest/globals";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { openEvents } from "../support/sse.js";
import { testWithStack } from "../support/stack.js";

const OWN = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
const ROLES = "users,posts,bridge,fanout,api,gateway";
const FOLLOWED = { TIMELINE_HOME_REPLIES: "followed" };
const PATIENCE_MS = 5_000;

// Invariant 5.
testWithStack(
  "replies come and go with the follow of whom they answer, on pages and streams, past the cap too",
  { service: false },
  async (stack) => {
    const folder = await temporaryFolder("data");
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const env = { ...OWN, ...FOLLOWED, TIMELINE_MAX_ENTRIES: "10", TIMELINE_DATA_DIR: join(folder, "data") };
    const service = await stack.start({ roles: ROLES, env });
    const [api, reads] = [openApi(service.grpcAddress), openReader(service.grpcAddress)];
    stack.defer(() => api.close());
    stack.defer(() => reads.close());
    const post = async (user: string, reply_to = "") => (await api.post(user, { reply_to })).drop_id;
    const shows = async (ids: readonly string[]): Promise<void> => {
      const read = async () => [
        ...(await reads.home("ada", { limit: 5 })).drop_ids,
        ...(await reads.home("ada", { limit: 100, max_id: (await reads.home("ada", { limit: 5 })).next_max_id }))
          .drop_ids,
      ];
      await becomes(async () => expect(await read()).toEqual(ids), PATIENCE_MS);
    };
    await api.follow({ follower_id: "ada", following_id: "bob" });
    const [eves, cats] = [await post("eve"), await post("cat")];
    const shown: string[] = [];
    const toEve = await post("bob", eves);
    for (let drop = 0; drop < 12; drop++) shown.unshift(await post("bob"));
    await shows(shown);
    const stream = await openEvents(service.httpUrl, "ada");
    stack.defer(() => stream.close());

    const [left, plain] = [await post("bob", eves), await post("bob")];
    await eventually(() => stream.drops().includes(plain), "a drop that is no reply");
    expect(stream.drops()).toEqual([plain]);
    await shows([plain, ...shown]);
    await api.follow({ follower_id: "ada", following_id: "eve" });
    await shows([plain, left, ...shown, toEve, eves]);
    const answer = await post("bob", eves);
    await eventually(() => stream.drops().includes(answer), "a reply to somebody who is followed");
    await api.unfollow({ follower_id: "ada", following_id: "eve" });
    await shows([plain, ...shown]);
    expect((await reads.local({ limit: 100 })).drop_ids).toEqual([plain, ...shown, cats, eves].slice(0, 10));
    const own = { TIMELINE_USER_SERVICE_ADDR: service.grpcAddress, TIMELINE_POST_SERVICE_ADDR: service.grpcAddress };
    const explained = await jsonOf(stack, ["timeline", "explain", "ada", left], { env: { ...env, ...own } });
    expect(explained).toMatchObject({ verdict: "left-out", is_reply_to_others: true });
  },
);
