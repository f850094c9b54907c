import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "@jest/globals";
import { MINUTE } from "../../src/kernel/time.js";
import { SOURCE_TOKENS_KEY } from "../../src/state/keys.js";
import { call, post } from "../support/analysis-http.js";
import { type AppView, startAppView } from "../support/appview.js";
import { temporaryFolder } from "../support/brokers.js";
import { becomes } from "../support/eventually.js";
import { limited } from "../support/limits.js";
import { type Stack, testWithStack } from "../support/stack.js";

const NOW = Date.now();
const ADA = `did:plc:ada${"7".repeat(21)}`;
const [ANNA, ARNO, ABEL] = ["did:web:anna.example", "did:web:arno.example", "did:web:abel.example"] as const;
const NOBODY = "did:web:nobody.example";

async function startAll(
  stack: Stack,
  rate: string,
  more: NodeJS.ProcessEnv = {},
): Promise<{ url: string; view: AppView }> {
  const [folder, view] = await Promise.all([temporaryFolder("analysis"), startAppView()]);
  stack.defer(() => Promise.all([rm(folder, { recursive: true, force: true }), view.stop()]));
  for (const user of ["bob", "carol"]) stack.world.addProfile(user);
  const env = {
    TIMELINE_DATA_DIR: join(folder, "data"),
    TIMELINE_RETRY_BASE_MS: "20",
    TIMELINE_ATPROTO_URL: view.url,
    TIMELINE_ANALYSIS_SOURCE_RATE: rate,
    ...more,
  };
  const { httpUrl: url } = await stack.start({ roles: "gateway,analysis", env });
  return { url, view };
}

/** Asks for an analysis, and yields what to look at. */
async function ask(url: string, did: string): Promise<() => Promise<Record<string, unknown>>> {
  const { status, body } = await post(url, "ada", { tier: "ORBIT", body: { did, type: "full" } });
  if (status !== 202) throw new Error(JSON.stringify(body));
  return async () => (await call(url + body.status_url, { user: "ada" })).body;
}

testWithStack(
  "accounts of the AT Protocol and users of ours are analysed; one that is gone or fails alone does not hold up the others",
  { service: false },
  async (stack) => {
    const { url, view } = await startAll(stack, "5000");
    view.post(ADA, ...Array.from({ length: 530 }, (_, n) => ({ createdAt: NOW - n * MINUTE, likes: 2 })));
    view.post(ANNA);
    view.suspend(ARNO);
    view.inject({ did: ABEL, kind: 503 });
    const counts = { likes: 3, shares: 1, replies: 0 };
    stack.world.post(
      { drop_id: "d1", user_id: "bob", created_at: NOW - MINUTE, counts },
      { drop_id: "d2", user_id: "bob", created_at: NOW, visibility: "followers", counts },
    );
    const [ada, anna, bob] = [await ask(url, ADA), await ask(url, ANNA), await ask(url, "bob")];
    const kudos = (likes: number) => expect.objectContaining({ likes });
    await becomes(async () =>
      expect([await ada(), await anna(), await bob()]).toMatchObject([
        { status: "completed", results: { version: "1", posts: 500, kudos: kudos(1_000), to: expect.any(String) } },
        { status: "completed", results: { posts: 0, kudos: kudos(0) } },
        { status: "completed", results: { posts: 1, kudos: kudos(3) } },
      ]),
    );
    const gone = await Promise.all([NOBODY, ARNO, ABEL, "made-up"].map((did) => ask(url, did)));
    await becomes(async () =>
      expect(await Promise.all(gone.map((look) => look()))).toMatchObject(gone.map(() => ({ status: "failed" }))),
    );
    expect(view.calls(NOBODY) + view.calls(ARNO)).toBe(2);
    expect(view.calls(ABEL)).toBe(3);
    const letters = await stack.streams.all("DLQ");
    expect(letters.map(({ subject }) => subject)).toEqual(["dlq.exhausted.analysis_requested"]);
  },
);

// Invariant 8.
testWithStack(
  "while the source asks for a pause nobody calls it, our users are analysed, and afterwards all is done",
  { service: false },
  async (stack) => {
    const { url, view } = await startAll(stack, "1000000");
    view.post(ADA, { createdAt: NOW });
    const heal = view.inject({ kind: 429, headers: { "retry-after": "2" } });
    const ada = await ask(url, ADA);
    await becomes(async () => expect(view.calls()).toBe(1));
    heal();
    const bob = await ask(url, "bob");
    await becomes(async () => expect(await bob()).toMatchObject({ status: "completed" }));
    await becomes(async () => expect(await ada()).toMatchObject({ status: "completed", results: { posts: 1 } }));
    expect(view.calls()).toBe(2);
    expect(await stack.streams.count("DLQ")).toBe(0);
  },
);

// Invariant 8.
testWithStack(
  "while there is no token for the AT Protocol our users are analysed, and afterwards all is done",
  { service: false },
  async (stack) => {
    const { url, view } = await startAll(stack, "1", limited({ analysesAtOnce: 2 }));
    const dids = [ADA, ANNA, ARNO, ABEL];
    for (const did of dids) view.post(did, { createdAt: NOW });
    const all: Awaited<ReturnType<typeof ask>>[] = [];
    for (const did of dids) all.push(await ask(url, did));
    await becomes(async () => expect(view.calls()).toBe(1));
    for (const user of ["bob", "carol"]) {
      const own = await ask(url, user);
      await becomes(async () => expect(await own()).toMatchObject({ status: "completed" }));
    }
    const statuses = async () => (await Promise.all(all.map((look) => look()))).map(({ status }) => status);
    expect((await statuses()).filter((status) => status === "completed")).toHaveLength(1);
    await becomes(async () => {
      await stack.redis.del(SOURCE_TOKENS_KEY);
      expect(await statuses()).toEqual(dids.map(() => "completed"));
    }, 60_000);
    expect(view.calls()).toBe(dids.length);
    // A row shows before its message is acked.
    await becomes(async () => expect(await stack.streams.count("TIMELINE")).toBe(0));
    expect(await stack.streams.count("DLQ")).toBe(0);
    const events = await stack.streams.all("TIMELINE_EVENTS");
    expect(events.filter(({ subject }) => subject.endsWith("failed"))).toEqual([]);
  },
);
