import { expect } from "@jest/globals";
import { Visibility } from "../../src/gen/avion/posts.js";
import { openApi } from "../support/api.js";
import { becomes } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { type Stack, testWithStack } from "../support/stack.js";

const OWN = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
const ROLES = "users,posts,bridge,fanout,api";
const FOLLOWED = { TIMELINE_HOME_REPLIES: "followed" };
const PATIENCE_MS = 5_000;
const { FOLLOWERS, UNLISTED, DIRECT } = Visibility;

async function open(stack: Stack, env: Readonly<Record<string, string>> = {}) {
  const service = await stack.start({ roles: ROLES, env: { ...OWN, ...FOLLOWED, ...env } });
  const [api, reads] = [openApi(service.grpcAddress), openReader(service.grpcAddress)];
  stack.defer(() => api.close());
  stack.defer(() => reads.close());
  const post = async (user: string, more: Parameters<typeof api.post>[1] = {}) => (await api.post(user, more)).drop_id;
  /** Reads the whole list of ada in pages of three. */
  const whole = async (list: string): Promise<string[]> => {
    const ids: string[] = [];
    for (let max_id = ""; ; ) {
      const page = await reads.list("ada", list, { limit: 3, max_id });
      if (page.degraded) return ["degraded"];
      ids.push(...page.drop_ids);
      if (!page.has_more) return ids;
      max_id = page.next_max_id;
    }
  };
  const shows = (list: string, ids: readonly string[]): Promise<void> =>
    becomes(async () => expect(await whole(list)).toEqual(ids), PATIENCE_MS);
  return { api, reads, post, shows, service };
}

testWithStack(
  "a list shows what is public or unlisted of its members, and more of those whom the owner follows",
  { service: false, data: true },
  async (stack) => {
    const { api, post, shows } = await open(stack);
    const list = await api.createList("ada", "bob", "cat");
    await shows(list, []);
    const one = await post("bob");
    const two = await post("cat", { visibility: UNLISTED });
    const three = await post("bob", { visibility: FOLLOWERS, mentions: ["ada"] });
    await post("eve");
    await post("ada");
    await shows(list, [two, one]);
    await api.follow({ follower_id: "ada", following_id: "bob" });
    const direct = await post("bob", { visibility: DIRECT, recipients: ["ada"] });
    await post("bob", { visibility: DIRECT, recipients: ["cat"] });
    await shows(list, [direct, three, two, one]);
    await api.unfollow({ follower_id: "ada", following_id: "bob" });
    await shows(list, [two, one]);
    // All of them are stored: a rebuild finds the same.
    await stack.redis.del(`timeline:list:${list}`);
    await shows(list, [two, one]);
    await api.follow({ follower_id: "ada", following_id: "bob" });
    await shows(list, [direct, three, two, one]);
    await api.deleteDrop({ drop_id: one, user_id: "bob" });
    await shows(list, [direct, three, two]);
  },
);
