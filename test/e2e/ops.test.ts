import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import type { Browser, Page } from "playwright-core";
import { hasBrowser, launchBrowser } from "../support/browser.js";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { newPort } from "../support/ports.js";
import { type Stack, sharedStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";
import { tokenOf } from "../support/tokens.js";

const address = `127.0.0.1:${await newPort()}`;
const consoleUrl = `http://${address}/ops/`;

const onStack = sharedStack({
  roles: "bridge,fanout,api,ops",
  env: { TIMELINE_OPS_ADDR: address, TIMELINE_MAX_ATTEMPTS: "2", TIMELINE_RETRY_BASE_MS: "50" },
  timeoutMs: 60_000,
});

const OPERATOR = { claims: { scope: "read timeline-operator" } };

interface Asking {
  readonly token?: string | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

async function ask(path: string, { token, headers, body }: Asking) {
  const response = await fetch(`${consoleUrl}api/${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }), ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, json: (await response.json()) as unknown };
}

/** The drop becomes a dead letter, and so does each of the author until what is returned is called. */
async function giveUp(stack: Stack, author: string, drop_id: string): Promise<() => void> {
  const { world, upstreams, streams } = stack;
  world.follow("ada", author);
  const heal = upstreams.inject({ method: "GetFollowersList", user: author, code: status.INTERNAL });
  const drop = { drop_id, user_id: author, visibility: "public" as const, created_at: Date.now() };
  world.post(drop);
  const before = await streams.count("DLQ");
  await stack.publish(created(drop));
  await eventually(async () => (await streams.count("DLQ")) === before + 1, "the dead letter");
  return heal;
}

const READS = [
  "overview",
  "history",
  "dead-letters",
  "dead-letters/1",
  "authors",
  "standings",
  "erasures",
  "erasures/ada",
  "analyses",
  "analyses/none",
  "tables",
  "fan-outs/drop",
  "audits/ada",
  "explain?user=ada&drop=drop",
  "nothing",
];
const ACTS = ["dead-letters/redrive", "dead-letters/remove", "standings"];

onStack("the console answers operators alone, and no page of another origin", async (stack) => {
  const refusals: readonly (readonly [Asking, number])[] = [
    [{}, 401],
    [{ token: await tokenOf("eve", { ...OPERATOR, secret: "a secret that is long enough, and is another one" }) }, 401],
    [{ token: await tokenOf("eve") }, 403],
    [{ token: await tokenOf("eve", { claims: { scope: "timeline-operators", role: "timeline-operator" } }) }, 403],
    [{ headers: { cookie: `access_token=${await tokenOf("eve", OPERATOR)}` } }, 401],
    [{ token: await tokenOf("eve", OPERATOR), headers: { "sec-fetch-site": "cross-site" } }, 403],
  ];
  for (const [asking, wanted] of refusals) {
    for (const path of READS) expect([path, (await ask(path, asking)).status]).toEqual([path, wanted]);
    for (const path of ACTS)
      expect([path, (await ask(path, { ...asking, body: { all: true, why: "x" } })).status]).toEqual([path, wanted]);
  }
  const page = await fetch(consoleUrl);
  expect(page.status).toBe(200);
  expect(page.headers.get("content-security-policy")).toMatch(/^default-src 'self';.*frame-ancestors 'none'/);
  for (const claims of [{ scope: "timeline-operator" }, { scope: ["a", "timeline-operator"] }])
    expect((await ask("overview", { token: await tokenOf("olga", { claims }) })).status).toBe(200);
  const { httpUrl } = stack.service;
  expect((await fetch(`${httpUrl}/ops/`)).status).toBe(404);
  expect((await fetch(new URL("/metrics", consoleUrl))).status).toBe(404);
});

onStack(
  "operators see queues, dead letters, records and explanations, and their acts are logged with a reason",
  async (stack) => {
    const { world, streams, service } = stack;
    const token = await tokenOf("olga", OPERATOR);
    const get = async <Answer = unknown>(path: string): Promise<Answer> => {
      const { status: code, json } = await ask(path, { token });
      expect([path, code, json]).toEqual([path, 200, json]);
      return json as Answer;
    };
    const logged = (line: RegExp) => becomes(async () => expect(service.output()).toMatch(line));
    const act = (path: string, body: unknown) => ask(`dead-letters/${path}`, { token, body });
    for (const drop of ["a-1", "a-2"]) (await giveUp(stack, "anna", drop))();

    const none = { pending: 0, ack_pending: 0, oldest_seconds: 0 };
    // The last message is acknowledged after its dead letter is stored.
    await becomes(async () =>
      expect(await get("overview")).toMatchObject({
        streams: expect.arrayContaining([expect.objectContaining({ name: "DLQ", messages: 2, last_seq: 2 })]),
        consumers: expect.arrayContaining([expect.objectContaining({ ...none, name: "planner", stream: "DROPS" })]),
      }),
    );

    expect(await get("history")).toMatchObject([
      {
        streams: expect.arrayContaining([{ name: "DLQ", last_seq: expect.any(Number) }]),
        consumers: expect.arrayContaining([expect.objectContaining({ name: "planner", handled: expect.any(Number) })]),
      },
    ]);

    const groups = await get<readonly { readonly seqs: readonly number[] }[]>("dead-letters");
    const error = expect.stringMatching(/^GetFollowersList: INTERNAL/);
    const group = { count: 2, error, reason: "exhausted", event: "drop_created", author_count: 1 };
    expect(groups).toEqual([expect.objectContaining({ ...group, authors: [{ author_id: "anna", count: 2 }] })]);
    const [first, second] = groups[0]?.seqs ?? [];
    expect(await get("dead-letters?event=drop_created&reason=exhausted&error=INTERNAL&since=1h")).toEqual(groups);
    for (const filter of ["event=drop_deleted", "reason=invalid", "error=other", "since=2999-01-01"])
      expect(await get(`dead-letters?${filter}`)).toEqual([]);
    expect(await get(`dead-letters/${first}`)).toEqual(await jsonOf(stack, ["dlq", "show", String(first)]));
    expect((await ask("dead-letters/99", { token })).status).toBe(404);

    const dead = { admitted: [{ event: "drop_created" }], completions: [], dead_letters: [{ seq: first }] };
    expect(await get("fan-outs/a-1")).toMatchObject(dead);

    expect(await act("redrive", { seqs: [first], why: "anna is healed" })).toMatchObject({
      json: { redriven: [first] },
    });
    await logged(/"action":"redrive","operator":"olga","why":"anna is healed","selection":{"seqs":\[\d+\]}/);
    await eventually(async () => (await stack.reads.home("ada")).drop_ids.includes("a-1"), "the drop in the home");
    await becomes(async () =>
      expect(await get("fan-outs/a-1")).toMatchObject({ completions: [{ recipients: 2 }], dead_letters: [] }),
    );

    const noReason = await act("remove", { seqs: [second] });
    expect(noReason).toMatchObject({ status: 400, json: { errors: [{ field: "why", detail: "is missing" }] } });
    expect((await act("remove", { seqs: [second], why: " " })).status).toBe(400);
    expect((await act("remove", { why: "none is named" })).status).toBe(400);
    expect(await streams.count("DLQ")).toBe(1);
    expect(await act("remove", { seqs: [second], why: "a \n test" })).toMatchObject({ json: { removed: [second] } });
    await logged(/"action":"rm","operator":"olga","why":"a \\n test"/);
    expect(await get("dead-letters")).toEqual([]);

    world.follow("ada", "zoe");
    const asked = { user: "ada", drop: "a-1" };
    const explained = await get(`explain?${new URLSearchParams(asked).toString()}`);
    expect(explained).toMatchObject({ ...asked, verdict: "shown", author: "anna", follows: true });
    expect(await jsonOf(stack, ["timeline", "explain", "ada", "a-1"])).toEqual(explained);
    const reply = await streams.connection.request("avion.ops.timeline.explain", JSON.stringify(asked), {
      timeout: 10_000,
    });
    expect(reply.json()).toEqual(explained);
    const unnamed = await streams.connection.request("avion.ops.timeline.explain", "{}", { timeout: 10_000 });
    expect(unnamed.headers?.get("Nats-Service-Error-Code")).toBe("400");
    expect(await ask("explain?user=ada", { token })).toMatchObject({
      status: 400,
      json: { errors: [{ field: "drop", detail: "is missing" }] },
    });

    await jsonOf(stack, ["author", "pull", "big"]);
    await becomes(async () => expect(await get("authors")).toMatchObject([{ author_id: "big", state: "pulled" }]));
    const [big, ...others] = await jsonOf<{ since: string }[]>(stack, ["author", "ls"]);
    expect(await get("authors")).toEqual([big, ...others]);
    expect(await get("tables")).toMatchObject([
      { headings: ["Author", "State", "By", "Since"], rows: [["big", "pulled", "hand", big?.since]] },
      { none: "nobody is limited or suspended", rows: [] },
      { none: "nobody is erased", rows: [] },
      { none: "no analysis waits, and there is no dead letter of one", rows: [] },
    ]);
    await jsonOf(stack, ["timeline", "rebuild", "ada"]);
    expect(await get("audits/ada")).toMatchObject({ users: 1, differ: 0 });
    expect(await get("erasures")).toEqual([]);
    expect(await get("erasures/ada")).toMatchObject({ user_id: "ada", status: "none" });
    expect(await get("analyses")).toEqual([]);
    expect((await ask("analyses/none", { token })).status).toBe(404);
  },
);

const inBrowser = hasBrowser ? onStack : () => undefined;

async function signIn(page: Page, token: string): Promise<void> {
  await page.goto(consoleUrl);
  await page.getByLabel("Operator's token").fill(token);
  await page.getByLabel("Operator's token").press("Enter");
}

/** Every view at the widths of a phone and a laptop, as somebody looks at it. */
async function screenshots(page: Page, folder: string): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const)
    for (const width of [375, 1366]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 800 });
      const view = (await page.evaluate("location.hash.slice(1) || 'overview'")) as string;
      await page.screenshot({ path: `${folder}/${view}-${width}-${colorScheme}.png`, fullPage: true });
    }
}

inBrowser("in a browser an operator sees the lag, redrives and removes dead letters, and asks why", async (stack) => {
  const heal = await giveUp(stack, "bea", "b-1");
  const browser: Browser = await launchBrowser();
  stack.defer(() => browser.close());
  const page = await browser.newPage();
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
  const look = async (): Promise<void> => {
    await page.setViewportSize({ width: 375, height: 800 });
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(375);
    if (process.env["SCREENSHOTS"]) await screenshots(page, process.env["SCREENSHOTS"]);
    await page.setViewportSize({ width: 1366, height: 800 });
  };

  await signIn(page, await tokenOf("eve"));
  await page.getByText("the access token is not an operator's").waitFor();
  expect(await page.getByRole("navigation").isVisible()).toBe(false);
  faults.length = 0;
  await signIn(page, await tokenOf("olga", OPERATOR));
  await page.getByRole("img", { name: /^Waiting messages: \d.*: now \d/ }).waitFor();
  await page.getByRole("row", { name: /^planner/ }).waitFor();
  await look();

  await page.getByRole("link", { name: "Dead letters" }).press("Enter");
  await page.getByText("1 dead letter, by error.").waitFor();
  await page.getByText(/^1 × GetFollowersList: INTERNAL/).waitFor();
  await page.locator("#filters [name=event]").selectOption("drop_created");
  await page.locator("#filters [name=reason]").selectOption("exhausted");
  await page.locator("#filters [name=since]").selectOption("in the last hour");
  await page.getByLabel("Error contains").fill("something else");
  await page.getByLabel("Error contains").press("Enter");
  await page.getByText("No dead letter is like that.").waitFor();
  await page.getByLabel("Error contains").fill("GetFollowersList");
  await page.getByRole("button", { name: "Filter" }).press("Enter");
  await page.getByText("1 dead letter, by error.").waitFor();
  await page.getByRole("button", { name: /^Show \d/ }).press("Enter");
  await page.getByText(/^Dead letter \d+ of dlq.exhausted.drop_created$/).waitFor();
  await page.getByText('"drop_id": "b-1"').waitFor();
  await page.getByText("Dlq-Consumer").waitFor();
  await look();
  heal();
  await page.getByRole("button", { name: "Redrive", exact: true }).first().press("Enter");
  await page.getByLabel("Reason, for the log").fill("bea is healed");
  await page.getByRole("dialog").getByRole("button", { name: "Redrive" }).press("Enter");
  await page.getByText("1 redriven.").waitFor();
  await page.getByText("No dead letter is like that.").waitFor();
  await becomes(async () => expect(stack.service.output()).toContain('"operator":"olga","why":"bea is healed"'));
  expect(await page.evaluate("document.activeElement.id")).toBe("dead-letters-title");

  await page.getByRole("link", { name: "Explain" }).click();
  await page.getByLabel("User of the home").fill("ada");
  await page.getByLabel("Drop", { exact: true }).fill("b-1");
  await page.getByLabel("Drop", { exact: true }).press("Enter");
  await page.getByText("It is shown: the home has it, as it must.").waitFor();
  await page.getByText("The user follows the author: yes").waitFor();
  await look();

  await page.getByRole("link", { name: "Records" }).click();
  await page.getByText("Nobody is erased.").waitFor();
  await page.getByLabel("Id", { exact: true }).fill("b-1");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByRole("heading", { name: "completions" }).waitFor();
  await page.locator("#look-up [name=kind]").selectOption("audit of a home, now");
  for (const [user, sentence] of [
    ["ada", "The home is as it must be."],
    ["adda", "The upstreams know no such user: correct the id."],
  ] as const) {
    await page.getByLabel("Id", { exact: true }).fill(user);
    await page.getByRole("button", { name: "Look up" }).click();
    await page.getByText(sentence).waitFor();
  }
  await look();
  expect(faults).toEqual([]);
});
