import { expect, test } from "@jest/globals";
import { EventSource } from "eventsource";
import type { Page } from "playwright-core";
import { openApi } from "../support/api.js";
import { hasBrowser, launchBrowser } from "../support/browser.js";
import { addressesOf, areOpen, hear, hearAll, interest, PEOPLE, postFor } from "../support/client-streams.js";
import { eventually } from "../support/eventually.js";
import { hasHttpx, listenWithHttpx } from "../support/httpx.js";
import { hasNginx, type Nginx, startNginx } from "../support/nginx.js";
import { launchService, type Service, untilReady } from "../support/service.js";
import { requestEvents } from "../support/sse.js";
import { type Stack, type StackOptions, startStack } from "../support/stack.js";
import { runs } from "../support/suite.js";
import { created } from "../support/timeline-events.js";
import { tokenOf } from "../support/tokens.js";

interface Scene {
  readonly stack: Stack;
  readonly nginx: Nginx;
  readonly gateways: Service[];
  /** Ends a gateway in order and starts another one on its addresses. */
  restart(at: number): Promise<void>;
  /** Posts drops of `star`, and returns their ids. */
  post(count: number): Promise<string[]>;
}

/** Two gateways behind nginx, as docs/procedures.md shows it, and fan-out beside them. */
function behindNginx(name: string, options: StackOptions, work: (scene: Scene) => Promise<void>): void {
  if (!(options.slow ? runs.slow : runs.quick)) return;
  const declare = hasNginx ? test : test.skip;
  declare(
    name,
    async () => {
      const stack = await startStack({ roles: "bridge,fanout", ...options });
      try {
        const env = options.data ? addressesOf(stack.service) : {};
        const gateways = await Promise.all([1, 2].map(() => stack.start({ roles: "gateway", env })));
        const nginx = await startNginx(gateways.map(({ httpUrl }) => httpUrl));
        stack.defer(() => nginx.stop());
        await work({ stack, nginx, gateways, ...changesOf(stack, gateways, env) });
      } catch (error) {
        throw stack.explain(error);
      } finally {
        await stack.stop();
      }
    },
    options.timeoutMs,
  );
}

function changesOf(
  stack: Stack,
  gateways: Service[],
  env: Readonly<Record<string, string>>,
): Pick<Scene, "restart" | "post"> {
  let posted = 0;
  return {
    restart: async (at) => {
      const old = gateways[at] as Service;
      expect(await old.stop()).toEqual({ code: 0, signal: null });
      const own = { TIMELINE_HTTP_ADDR: new URL(old.httpUrl).host, TIMELINE_GRPC_ADDR: old.grpcAddress };
      const launched = await launchService({ ...stack.serviceOptions, roles: "gateway", env: { ...env, ...own } });
      const again = { ...launched, httpUrl: old.httpUrl };
      stack.defer(() => again.stop());
      await untilReady(again);
      gateways[at] = again;
    },
    post: async (count) => {
      const drops = Array.from({ length: count }, () => {
        posted++;
        return { drop_id: `star-${posted}`, user_id: "star", visibility: "public", created_at: Date.now() } as const;
      });
      stack.world.post(...drops);
      await stack.publish(...drops.map(created));
      return drops.map(({ drop_id }) => drop_id);
    },
  };
}

/** The events a client heard, in order. */
interface Client {
  readonly drops: string[];
  readonly resets: string[];
  isOpen(): boolean;
  /** How often it was connected or cut off. */
  changes(): number;
  close(): void;
}

async function listen({ url }: Nginx, user: string): Promise<Client> {
  const authorization = `Bearer ${await tokenOf(user)}`;
  const source = new EventSource(`${url}/events/timeline/home`, {
    fetch: (to, init) => fetch(to, { ...init, headers: { ...init.headers, authorization } }),
  });
  let changes = 0;
  for (const event of ["open", "error"]) source.addEventListener(event, () => changes++);
  const client = {
    ...{ drops: [] as string[], resets: [] as string[] },
    isOpen: () => source.readyState === EventSource.OPEN,
    changes: () => changes,
    close: () => source.close(),
  };
  source.addEventListener("new_drop", ({ data }) => client.drops.push(JSON.parse(data).drop_id));
  source.addEventListener("reset", ({ data }) => client.resets.push(data));
  return client;
}

/** An EventSource in a page of the same origin, with the cookie. */
async function openInBrowser(stack: Stack, { url }: Nginx, user: string): Promise<Page> {
  const browser = await launchBrowser();
  stack.defer(() => browser.close());
  const context = await browser.newContext();
  await context.addCookies([{ name: "access_token", value: await tokenOf(user), url, httpOnly: true }]);
  const page = await context.newPage();
  await page.goto(`${url}/page`);
  await page.evaluate(`
    heard = { drops: [], resets: [] };
    source = new EventSource("/events/timeline/home");
    source.addEventListener("new_drop", ({ data }) => heard.drops.push(JSON.parse(data).drop_id));
    source.addEventListener("reset", ({ data }) => heard.resets.push(data));
  `);
  return page;
}

const heardIn = (page: Page) =>
  page.evaluate<{ drops: string[]; resets: string[]; state: number }>("({ ...heard, state: source.readyState })");

const CLIENTS = 200;

// Invariant 7.
behindNginx(
  "two gateways restarted one after the other under 200 clients: all come back, with each drop once",
  { slow: true, timeoutMs: 240_000 },
  async (scene) => {
    const { stack, nginx } = scene;
    const users = Array.from({ length: CLIENTS }, (_, at) => `fan-${at}`);
    for (const user of [...users, "viewer", "snake"]) stack.world.follow(user, "star");
    const clients = await Promise.all(users.map((user) => listen(nginx, user)));
    stack.defer(() => {
      for (const client of clients) client.close();
    });
    const page = hasBrowser ? await openInBrowser(stack, nginx, "viewer") : undefined;
    const httpx = hasHttpx ? listenWithHttpx(`${nginx.url}/events/timeline/home`, await tokenOf("snake")) : undefined;
    stack.defer(async () => httpx?.close());
    const open = async (): Promise<boolean> =>
      clients.every((client) => client.isOpen()) &&
      httpx?.isOpen() !== false &&
      (!page || (await heardIn(page)).state === 1);
    await eventually(open, "all listen", 60_000);
    const posted = await scene.post(3);
    // This client takes an id with an event only.
    await eventually(() => clients.every(({ drops }) => drops.length === posted.length), "all have a position");
    let isOver = false;
    const changes = (): number => clients.reduce((sum, client) => sum + client.changes(), 0);
    const posting = (async () => {
      // NOTIFY keeps the last 128 of each user.
      while (!isOver && posted.length < 120) {
        const before = changes();
        posted.push(...(await scene.post(1)));
        await eventually(() => isOver || changes() >= before + CLIENTS / 10, "clients go and come back", 60_000);
      }
    })();
    for (const at of [0, 1]) await scene.restart(at);
    isOver = true;
    await posting;
    await eventually(open, "all are back", 60_000);
    posted.push(...(await scene.post(3)));
    await eventually(() => clients.every(({ drops }) => drops.length >= posted.length), "all have heard all", 30_000);
    for (const { drops, resets } of clients) {
      expect([...drops].sort()).toEqual([...posted].sort());
      expect(resets).toEqual([]);
    }
    if (httpx) {
      await eventually(() => httpx.drops.length >= posted.length, "the client of httpx-sse has heard all");
      expect([[...httpx.drops].sort(), httpx.resets]).toEqual([[...posted].sort(), []]);
    }
    if (!page) return;
    await eventually(async () => (await heardIn(page)).drops.length >= posted.length, "the page has heard all");
    const { drops, resets } = await heardIn(page);
    expect([[...drops].sort(), resets]).toEqual([[...posted].sort(), []]);
  },
);

// Invariant 7.
behindNginx(
  "a client at the limit, one that meets a gateway that starts, and one without a gateway come back by themselves",
  { env: { TIMELINE_SSE_MAX_CONNECTIONS_PER_USER: "1" }, slow: true, timeoutMs: 120_000 },
  async ({ stack, nginx, gateways, restart, post }) => {
    stack.world.follow("fan", "star");
    const client = await listen(nginx, "fan");
    stack.defer(() => client.close());
    await eventually(() => client.isOpen(), "it listens");
    const token = await tokenOf("fan");
    const full = await requestEvents((gateways[0] as Service).httpUrl, { token });
    const alsoFull = await requestEvents((gateways[1] as Service).httpUrl, { token });
    await eventually(() => full.isOver() || alsoFull.isOver(), "the gateway that has the stream refuses another one");
    const refused = full.isOver() ? full : alsoFull;
    expect([refused.status, refused.headers["content-type"]]).toEqual([200, "text/event-stream; charset=utf-8"]);
    expect(refused.retryMs()).toBeGreaterThanOrEqual(30_000);
    expect(refused.comments).toEqual(["too many event streams of this user"]);
    for (const stream of [full, alsoFull]) stream.close();
    await Promise.all(gateways.map((gateway) => gateway.stop()));
    const away = await requestEvents(nginx.url, { token });
    await away.ended;
    expect([away.status, away.raw()]).toEqual([200, "retry: 5000\n: no gateway answers\n\n"]);
    await restart(0);
    await eventually(() => client.isOpen(), "it is back", 60_000);
    const [drop] = await post(1);
    await eventually(() => client.drops.includes(drop as string), "it hears of a drop");
    expect(client.resets).toEqual([]);
  },
);

// Invariant 7.
behindNginx(
  "streams of each kind of the client for TypeScript go on while gateways are restarted, and while nginx has none",
  { ...PEOPLE, slow: true, timeoutMs: 180_000 },
  async ({ stack, nginx, gateways, restart }) => {
    const api = openApi(stack.service.grpcAddress);
    stack.defer(() => api.close());
    const heard = (await interest(api, "fan", "star")).map((name) => hear({ url: nginx.url, user: "fan", name }));
    for (const { stream } of heard) stack.defer(stream.close);
    const post = () => postFor(api, "star", ["fan"], 3);
    await areOpen(heard);
    const posted = await post();
    for (const at of [0, 1]) {
      await restart(at);
      posted.push(...(await post()));
      await hearAll(heard, posted, 60_000);
    }
    await Promise.all(gateways.map((gateway) => gateway.stop()));
    posted.push(...(await post()));
    const knows = (): boolean => heard.every(({ downs }) => downs.includes("no gateway answers"));
    await eventually(knows, "nginx says that there is none", 60_000);
    await restart(0);
    await hearAll(heard, posted, 60_000);
    for (const { name, drops, resets } of heard)
      expect([name, drops.toSorted(), resets]).toEqual([name, posted.toSorted(), []]);
  },
);
