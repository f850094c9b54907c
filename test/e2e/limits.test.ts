import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "@jest/globals";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { jsonOf, startCommand } from "../support/command.js";
import { becomes } from "../support/eventually.js";
import { refusal } from "../support/posts.js";
import { samplesOf } from "../support/scrape.js";
import { type Stack, testWithStack } from "../support/stack.js";

const LIMITS = {
  TIMELINE_LIMIT_DROPS: "3/1h",
  TIMELINE_LIMIT_SAME_BODY: "2/10m",
  TIMELINE_LIMIT_FOLLOWS: "1/24h",
  TIMELINE_LIMIT_REACTIONS: "off",
};

interface Listed {
  readonly user_id: string;
  readonly limit: string;
  readonly used: number;
  readonly most: number;
  readonly within: string;
  readonly free_at: string;
}

const listed = async (stack: Stack): Promise<Listed[]> =>
  (await jsonOf<Listed[]>(stack, ["limits", "ls"])).sort((a, b) => (a.limit < b.limit ? -1 : 1));

testWithStack(
  "limits hold in a process of users and posts; the metrics and `limits ls` show who is at one",
  { service: false, env: LIMITS },
  async (stack) => {
    const folder = await temporaryFolder("limits");
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const own = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
    const service = await stack.start({
      roles: "users,posts",
      env: { ...own, TIMELINE_DATA_DIR: join(folder, "data") },
    });
    const api = openApi(service.grpcAddress);
    stack.defer(() => api.close());
    expect(await listed(stack)).toEqual([]);
    const before = startCommand(stack, ["limits", "ls"]);
    expect([(await before.exited).code, before.output()]).toEqual([0, "nobody is at a limit\n"]);

    const user = "ünï ada";
    for (let n = 0; n < 2; n++) await api.post(user, { body: "same" });
    expect(await refusal(api.post(user, { body: "same" }))).toMatch(
      /^RESOURCE_EXHAUSTED .* 2 drops with the same text/,
    );
    const { drop_id } = await api.post(user, { body: "other" });
    expect(await refusal(api.post(user, { body: "more" }))).toMatch(/^RESOURCE_EXHAUSTED at most 3 drops within 1h/);
    await api.follow({ follower_id: "bob", following_id: user });
    expect(await refusal(api.follow({ follower_id: "bob", following_id: "eve" }))).toMatch(/^RESOURCE_EXHAUSTED/);
    for (let n = 0; n < 20; n++) await api.like({ drop_id, user_id: `u${n}` });

    const found = await listed(stack);
    expect(found).toEqual([
      { user_id: user, limit: "drops", used: 3, most: 3, within: "1h", free_at: expect.any(String) },
      { user_id: "bob", limit: "follows", used: 1, most: 1, within: "24h", free_at: expect.any(String) },
      { user_id: user, limit: "same-body", used: 2, most: 2, within: "10m", free_at: expect.any(String) },
    ]);
    const minutes = found.map(({ free_at }) => Math.ceil((Date.parse(free_at) - Date.now()) / 60_000));
    expect(minutes).toEqual([60, 24 * 60, 10]);
    const shown = startCommand(stack, ["limits", "ls"]);
    expect((await shown.exited).code).toBe(0);
    expect(shown.output()).toContain(`${user}  drops  3 of 3 within 1h, the next one at ${found[0]?.free_at}\n`);
    // A command that has other limits changes nothing.
    const shorter = { TIMELINE_LIMIT_DROPS: "5/1s", TIMELINE_LIMIT_FOLLOWS: "off" };
    const other = await jsonOf<Listed[]>(stack, ["limits", "ls"], { env: shorter });
    expect(other.map(({ limit }) => limit)).toEqual(["same-body"]);
    expect(await listed(stack)).toEqual(found);

    await becomes(async () => {
      const samples = samplesOf(await (await fetch(`${service.httpUrl}/metrics`)).text());
      const refused = samples.filter(({ name }) => name === "timeline_limited_total");
      expect(Object.fromEntries(refused.map(({ labels, value }) => [labels["limit"], value]))).toEqual({
        ...{ drops: 1, "same-body": 1, follows: 1, members: 0, reactions: 0 },
      });
    });
  },
);
