import { expect } from "@jest/globals";
import { openApi } from "../support/api.js";
import { becomes } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { type Sample, samplesOf } from "../support/scrape.js";
import { type Stack, testWithStack } from "../support/stack.js";

const LISTS = 50;
const MEMBERS = 100;
const PATIENCE_MS = 120_000;

/** Commands of clients, and those of scripts, that name a list while some work is done. */
async function commandsNaming(stack: Stack, lists: readonly string[], work: () => Promise<void>) {
  const count = { client: 0, lua: 0 };
  const monitor = await stack.redis.monitor();
  monitor.on("monitor", (_: string, args: readonly string[], source: string) => {
    if (lists.some((list) => args.some((arg) => arg.includes(list)))) count[source === "lua" ? "lua" : "client"]++;
  });
  await work();
  // Everything before it has been told then.
  let isOver = false;
  monitor.on("monitor", (_: string, args: readonly string[]) => {
    isOver ||= args.includes("the end of the work");
  });
  await stack.redis.echo("the end of the work");
  await becomes(async () => expect(isOver).toBe(true));
  monitor.disconnect();
  return count;
}

// Invariant 11.
testWithStack(
  "50 lists cost a drop of a member a few calls, the drops of others none, and let homes of others be rebuilt first",
  { service: false, data: true, slow: true, timeoutMs: 400_000 },
  async (stack) => {
    const env = {
      ...{ TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "", TIMELINE_LIMIT_FOLLOWS: "off" },
      TIMELINE_HOME_REPLIES: "followed",
    };
    const { grpcAddress, httpUrl } = await stack.start({ roles: "users,posts,bridge,fanout,api", env });
    const [api, reads] = [openApi(grpcAddress), openReader(grpcAddress)];
    stack.defer(() => api.close());
    stack.defer(() => reads.close());
    const members = ["bob", ...Array.from({ length: MEMBERS - 1 }, (_, n) => `m${n}`)];
    const lists: string[] = [];
    while (lists.length < LISTS) lists.push(await api.createList("ada", ...members));
    for (const follower_id of ["ada", "fan"])
      for (const following_id of ["bob", "eve"]) await api.follow({ follower_id, following_id });
    await stack.streams.settledWith(LISTS * MEMBERS, PATIENCE_MS);
    const first = (await api.post("bob")).drop_id;
    const shownIn = async (drop: string): Promise<number> => {
      const pages = await Promise.all(lists.map((list) => reads.list("ada", list, { limit: 1 })));
      return pages.filter(({ drop_ids: [newest], degraded }) => newest === drop && !degraded).length;
    };
    const sum = async (is: (sample: Sample) => boolean | undefined): Promise<number> =>
      samplesOf(await (await fetch(`${httpUrl}/metrics`)).text())
        .filter(is)
        .reduce((total, { value }) => total + value, 0);
    const rebuilt = () => sum(({ name }) => name === "timeline_rebuild_seconds_count");
    const pages = shownIn(first);
    await becomes(async () => expect(await rebuilt()).toBeGreaterThan(0), PATIENCE_MS);
    await becomes(async () => expect((await reads.home("newcomer", { limit: 1 })).degraded).toBe(false));
    expect(await rebuilt()).toBeLessThan(LISTS / 2);
    await pages;
    await becomes(async () => expect(await shownIn(first)).toBe(LISTS), PATIENCE_MS);
    const asked = () =>
      sum(({ name, labels }) => name === "timeline_grpc_requests_total" && labels["method"]?.endsWith("FindLists"));
    const home = async () => (await reads.home("fan", { limit: 1 })).drop_ids[0];
    const post = async (author: string, isShown: (drop: string) => Promise<boolean>): Promise<string> => {
      const drop = (await api.post(author)).drop_id;
      await becomes(async () => expect(await isShown(drop)).toBe(true));
      return drop;
    };
    await post("eve", async (drop) => (await home()) === drop);
    const before = await asked();
    const isInLists = async (drop: string): Promise<boolean> =>
      (await Promise.all(lists.map((list) => stack.redis.zscore(`timeline:list:${list}`, drop)))).every(Boolean);
    let looks = 0;
    const bobs = await commandsNaming(stack, lists, async () => {
      await post("bob", async (drop) => {
        looks += LISTS;
        return isInLists(drop);
      });
    });
    const eves = await commandsNaming(stack, lists, async () => {
      await post("eve", async (drop) => (await home()) === drop);
    });
    expect(eves).toEqual({ client: 0, lua: 0 });
    expect(bobs.client - looks).toBeLessThanOrEqual(4);
    expect(bobs.lua).toBeLessThanOrEqual(8 * LISTS);
    // Both lists of readers were cached.
    expect((await asked()) - before).toBe(0);
  },
);
