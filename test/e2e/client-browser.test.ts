import { readFileSync } from "node:fs";
import { expect } from "@jest/globals";
import type { Page } from "playwright-core";
import { hasBrowser, launchBrowser } from "../support/browser.js";
import { CLIENT } from "../support/client-package.js";
import { becomes, eventually } from "../support/eventually.js";
import { limited } from "../support/limits.js";
import { TcpProxy } from "../support/proxy.js";
import { type ScriptedServer, scriptedServer } from "../support/scripted-server.js";
import { type SharedStack, sharedStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";
import { tokenOf } from "../support/tokens.js";

const env = limited({ gateway: { retryMs: [10, 20] } });
const onStack = sharedStack({ roles: "bridge,fanout,api", env });
const inBrowser: typeof onStack = hasBrowser ? onStack : () => undefined;

/** A page of another origin, with the client. It keeps what it hears in the same step in which the position is stored. */
const PAGE = `<title>page</title><script type="module">
  import { TimelineClient } from "/client.js";
  const { url, token } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  const add = (name, value) => {
    sessionStorage[name] = JSON.stringify([...JSON.parse(sessionStorage[name] ?? "[]"), value]);
  };
  window.client = new TimelineClient({ url, token: () => token });
  window.stream = client.stream("home", { storage: sessionStorage });
  stream
    .on("new_drop", ({ data }) => add("drops", data.drop_id))
    .on("reset", ({ data }) => add("resets", data.reason))
    .on("open", () => add("opened", "yes"))
    .on("down", ({ error }) => add("downs", error.message));
</script>`;

const servePage = (): Promise<ScriptedServer> =>
  scriptedServer((response, { url }) => {
    const isScript = url === "/client.js";
    response.writeHead(200, { "Content-Type": isScript ? "text/javascript" : "text/html" });
    response.end(isScript ? readFileSync(`${CLIENT}/dist/index.js`) : PAGE);
  });

interface Scene {
  readonly page: Page;
  readonly proxy: TcpProxy;
  heard(name: "drops" | "resets" | "opened" | "downs"): Promise<string[]>;
}

async function openPage(stack: SharedStack, user: string): Promise<Scene> {
  const server = await servePage();
  stack.defer(() => server.close());
  const { httpUrl } = await stack.start({
    roles: "gateway",
    env: { ...env, TIMELINE_API_ADDR: stack.service.grpcAddress, TIMELINE_ALLOWED_ORIGINS: server.url },
  });
  const proxy = await TcpProxy.open(Number(new URL(httpUrl).port));
  stack.defer(() => proxy.close());
  const browser = await launchBrowser();
  stack.defer(() => browser.close());
  const page = await browser.newPage();
  const given = JSON.stringify({ url: proxy.url("http"), token: await tokenOf(user) });
  await page.goto(`${server.url}/#${encodeURIComponent(given)}`);
  const heard: Scene["heard"] = (name) => page.evaluate(`JSON.parse(sessionStorage[${JSON.stringify(name)}] ?? "[]")`);
  await eventually(async () => (await heard("opened")).length === 1, "the page listens");
  return { page, proxy, heard };
}

let posted = 0;

async function post(stack: SharedStack, user: string): Promise<string[]> {
  const drops = Array.from({ length: 4 }, () => {
    posted++;
    return { drop_id: `drop-${posted}`, user_id: user, visibility: "followers" as const, created_at: Date.now() };
  });
  stack.world.post(...drops);
  await stack.publish(...drops.map(created));
  return drops.map(({ drop_id }) => drop_id);
}

// Invariant 7.
inBrowser(
  "in Chromium a stream loses and repeats nothing over reloads, cuts and a server that refuses",
  async (stack) => {
    const user = stack.id("ada");
    const { page, proxy, heard } = await openPage(stack, user);
    const all = await post(stack, user);
    const hearsAll = (): Promise<void> =>
      eventually(
        async () => (await heard("drops")).length >= all.length || String(await heard("downs")),
        "all are heard",
      );
    await hearsAll();
    for (const _reload of [1, 2]) {
      all.push(...(await post(stack, user)));
      await page.reload();
      await hearsAll();
    }
    proxy.cutAfter(130);
    all.push(...(await post(stack, user)));
    await hearsAll();
    proxy.refuse(true);
    all.push(...(await post(stack, user)));
    await eventually(async () => (await heard("downs")).length >= 3, "the server refuses");
    proxy.refuse(false);
    await hearsAll();
    expect((await heard("drops")).toSorted()).toEqual(all.toSorted());
    expect(await heard("resets")).toEqual([]);
  },
);

inBrowser(
  "in Chromium the client reads pages of another origin, names wrong fields, and closes at once",
  async (stack) => {
    const user = stack.id("ada");
    const { page, heard } = await openPage(stack, user);
    const drops = await post(stack, user);
    await becomes(async () => {
      const read = (await page.evaluate("client.page('home', { limit: 2 })")) as {
        drop_ids: string[];
        has_more: boolean;
      };
      expect([read.drop_ids.length, read.has_more]).toEqual([2, true]);
      expect(drops).toEqual(expect.arrayContaining(read.drop_ids));
    });
    const refused =
      "client.page('home', { limit: 0 }).catch(({ status, problem }) => [status, problem.errors[0].field])";
    expect(await page.evaluate(refused)).toEqual([400, "limit"]);
    await page.evaluate("stream.close()");
    const connections = async () => (await stack.redis.scard(`sse_connections:user:${user}`)) === 0;
    await eventually(connections, "the gateway has no stream of the user");
    expect(await page.evaluate("stream.isClosed")).toBe(true);
    expect(await heard("downs")).toEqual([]);
  },
);
