import { readFileSync } from "node:fs";
import { expect } from "@jest/globals";
import type { Page } from "playwright-core";
import type { StreamName } from "../../clients/typescript/src/index.js";
import { openApi } from "../support/api.js";
import { hasBrowser, launchBrowser } from "../support/browser.js";
import { CLIENT } from "../support/client-package.js";
import { addressesOf, interest, PEOPLE, postFor } from "../support/client-streams.js";
import { becomes, eventually } from "../support/eventually.js";
import { TcpProxy } from "../support/proxy.js";
import { type ScriptedServer, scriptedServer } from "../support/scripted-server.js";
import { type SharedStack, sharedStack } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

const onStack = sharedStack(PEOPLE);
const inBrowser: typeof onStack = hasBrowser ? onStack : () => undefined;

/** A page of another origin, with the client. It keeps what it hears in the same step in which the position is stored. */
const PAGE = `<title>page</title><script type="module">
  import { TimelineClient } from "/client.js";
  const { url, token, names } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  window.client = new TimelineClient({ url, token: () => token });
  window.streams = names.map((name) => {
    const add = (what, value) => {
      const key = what + " of " + name;
      sessionStorage[key] = JSON.stringify([...JSON.parse(sessionStorage[key] ?? "[]"), value]);
    };
    return client
      .stream(name, { storage: sessionStorage })
      .on(name === "notifications" ? "notification" : "new_drop", ({ data }) => add("drops", data.drop_id))
      .on("reset", ({ data }) => add("resets", data.reason))
      .on("open", () => add("opened", "yes"))
      .on("down", ({ error }) => add("downs", error.message));
  });
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
  /** Posts drops of which every stream tells, and returns their ids. */
  post(): Promise<string[]>;
  /** Returns this of each stream. */
  heard(what: "drops" | "resets" | "opened" | "downs"): Promise<string[][]>;
}

async function openPage(stack: SharedStack, user: string): Promise<Scene> {
  const api = openApi(stack.service.grpcAddress);
  stack.defer(() => api.close());
  const author = stack.id("bob");
  const names = await interest(api, user, author);
  const server = await servePage();
  stack.defer(() => server.close());
  const { httpUrl } = await stack.start({
    roles: "gateway",
    env: { ...addressesOf(stack.service), TIMELINE_ALLOWED_ORIGINS: server.url },
  });
  const proxy = await TcpProxy.open(Number(new URL(httpUrl).port));
  stack.defer(() => proxy.close());
  const browser = await launchBrowser();
  stack.defer(() => browser.close());
  const page = await browser.newPage();
  const given = JSON.stringify({ url: proxy.url("http"), token: await tokenOf(user), names });
  await page.goto(`${server.url}/#${encodeURIComponent(given)}`);
  const heard: Scene["heard"] = async (what) => {
    const stored = (name: StreamName) => `JSON.parse(sessionStorage[${JSON.stringify(`${what} of ${name}`)}] ?? "[]")`;
    return page.evaluate(`[${names.map(stored).join()}]`);
  };
  await eventually(async () => (await heard("opened")).every(({ length }) => length === 1), "the page listens");
  return { page, proxy, heard, post: () => postFor(api, author, [user], 4) };
}

// Invariant 7.
inBrowser(
  "in Chromium streams of each kind lose and repeat nothing over reloads, cuts and a server that refuses",
  async (stack) => {
    const { page, proxy, post, heard } = await openPage(stack, stack.id("ada"));
    const all = await post();
    const hearAll = (): Promise<void> =>
      eventually(
        async () =>
          (await heard("drops")).every(({ length }) => length >= all.length) || JSON.stringify(await heard("downs")),
        "all are heard",
      );
    await hearAll();
    for (const _reload of [1, 2]) {
      all.push(...(await post()));
      await page.reload();
      await hearAll();
    }
    proxy.cutAfter(130);
    all.push(...(await post()));
    await hearAll();
    const before = (await heard("downs")).flat().length;
    proxy.refuse(true);
    all.push(...(await post()));
    await eventually(async () => (await heard("downs")).flat().length >= before + 10, "the server refuses");
    proxy.refuse(false);
    await hearAll();
    for (const drops of await heard("drops")) expect(drops.toSorted()).toEqual(all.toSorted());
    expect((await heard("resets")).flat()).toEqual([]);
  },
);

inBrowser(
  "in Chromium the client reads pages of another origin, names wrong fields, and closes at once",
  async (stack) => {
    const user = stack.id("ada");
    const { page, heard, post } = await openPage(stack, user);
    const drops = await post();
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
    await page.evaluate("for (const stream of streams) stream.close()");
    const connections = async () => (await stack.redis.scard(`sse_connections:user:${user}`)) === 0;
    await eventually(connections, "the gateway has no stream of the user");
    expect(await page.evaluate("streams.every((stream) => stream.isClosed)")).toBe(true);
    expect((await heard("downs")).flat()).toEqual([]);
  },
);
