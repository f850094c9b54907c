import { Metadata } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { context, propagation, trace } from "@opentelemetry/api";
import { node } from "@opentelemetry/sdk-node";
import { v7 } from "uuid";
import { CreateDropRequest, Visibility } from "../../src/gen/avion/posts.js";
import { dateOfId } from "../../src/kernel/ids.js";
import { DAY } from "../../src/kernel/time.js";
import { NO_PAYLOAD } from "../../src/posts/drops/payload.js";
import { describePosts } from "../support/describe-posts.js";
import { POSTS_CONFIG, post, refusal, startPosts } from "../support/posts.js";

const UNKNOWN = v7();

describePosts("drops", {}, (posts, { newDatabase }) => {
  test("a drop is stored with its event, answered, and read again", async () => {
    await posts.written();
    const before = { woken: posts.woken(), now: Date.now() };
    const { drop } = await posts.call.createDrop({
      user_id: "ada",
      visibility: Visibility.DIRECT,
      recipients: ["bob", "eve", "bob"],
      summary: "psst",
      body: "gr\u00fc\u00dfe \u{1f600}",
    });
    expect(drop).toEqual({
      drop_id: expect.any(String),
      user_id: "ada",
      visibility: Visibility.DIRECT,
      recipients: ["bob", "eve"],
      reply_to: "",
      repost_of: "",
      summary: "psst",
      body: "gr\u00fc\u00dfe \u{1f600}",
      revision: 1,
      created_at: dateOfId(drop?.drop_id as string),
      updated_at: drop?.created_at,
      mentions: [],
      ...NO_PAYLOAD,
    });
    expect(drop?.created_at).toBeGreaterThanOrEqual(before.now);
    expect(posts.woken()).toBe(before.woken + 1);
    const id = drop?.drop_id as string;
    expect(await posts.written()).toEqual([
      {
        key: id,
        subject: "drops.created",
        messageId: `drop_created:${id}`,
        body: {
          drop_id: id,
          user_id: "ada",
          visibility: "direct",
          created_at: drop?.created_at,
          recipients: ["bob", "eve"],
        },
      },
    ]);
    expect(await posts.call.getDrop({ drop_id: id })).toEqual({ drop });
    expect(await posts.call.getDrop({ drop_id: id.toUpperCase() })).toEqual({ drop });
  });

  test("an event carries the trace of the call", async () => {
    const provider = new node.NodeTracerProvider();
    provider.register();
    try {
      const id = "0af7651916cd43dd8448eb211c80319c";
      const metadata = new Metadata();
      metadata.set("traceparent", `00-${id}-b7ad6b7169203331-01`);
      await new Promise((resolve, reject) => {
        const request = CreateDropRequest.fromPartial({ user_id: "tracy", visibility: Visibility.PUBLIC, body: "x" });
        posts.client.createDrop(request, metadata, (error, answer) => (error ? reject(error) : resolve(answer)));
      });
      const rows = await posts.db.query("SELECT traceparent FROM public.outbox ORDER BY id DESC LIMIT 1");
      expect(rows).toEqual([{ traceparent: expect.stringContaining(`00-${id}-`) }]);
    } finally {
      await provider.shutdown();
      trace.disable();
      propagation.disable();
      context.disable();
    }
  });

  test("drops made at once have ids in the order of their making", async () => {
    const ids: string[] = [];
    for (let n = 0; n < 20; n++) ids.push(await post(posts));
    expect(ids).toEqual([...ids].sort());
  });

  test("an import keeps its time, and makes the partition it needs", async () => {
    const at = Date.UTC(2021, 1, 28, 23, 59, 59, 999);
    const { drop } = await posts.call.createDrop({
      user_id: "ada",
      visibility: Visibility.PUBLIC,
      body: "then",
      created_at: at,
    });
    expect(drop?.created_at).toBe(at);
    expect(await posts.call.getDrop({ drop_id: drop?.drop_id as string })).toEqual({ drop });
    const [event] = (await posts.written()).slice(-1);
    expect(event?.body["created_at"]).toBe(at);
    expect(event?.body).not.toHaveProperty("recipients");
  });

  test("a key makes one drop of a user, also when it comes fifty times at once", async () => {
    await posts.written();
    const draft = { user_id: "ada", visibility: Visibility.PUBLIC, body: "once", idempotency_key: "k1" };
    const answers = await Promise.all(Array.from({ length: 50 }, () => posts.call.createDrop(draft)));
    expect(new Set(answers.map(({ drop }) => drop?.drop_id)).size).toBe(1);
    expect(await posts.written()).toHaveLength(1);
    const other = await posts.call.createDrop({ ...draft, user_id: "bob" });
    expect(other.drop?.drop_id).not.toBe(answers[0]?.drop?.drop_id);
    const again = await posts.call.createDrop({ ...draft, body: "said otherwise" });
    expect(again).toEqual(answers[0]);
  });

  test("a key that is older than a day makes a new drop", async () => {
    const draft = { user_id: "cy", visibility: Visibility.PUBLIC, body: "daily", idempotency_key: "k" };
    const first = await posts.call.createDrop(draft);
    await posts.db.query("UPDATE posts.idempotency SET created_at = created_at - 86400001 WHERE user_id = 'cy'");
    const second = await posts.call.createDrop(draft);
    expect(second.drop?.drop_id).not.toBe(first.drop?.drop_id);
    expect(await posts.call.createDrop(draft)).toEqual(second);
  });

  test("a key whose drop is deleted makes none", async () => {
    const draft = { user_id: "dan", visibility: Visibility.PUBLIC, body: "gone", idempotency_key: "k" };
    const { drop } = await posts.call.createDrop(draft);
    await posts.call.deleteDrop({ drop_id: drop?.drop_id as string, user_id: "dan" });
    expect(await refusal(posts.call.createDrop(draft))).toMatch(/^FAILED_PRECONDITION idempotency_key/);
  });

  test("a reply is counted for its parent, and listed, until it is deleted", async () => {
    const parent = await post(posts);
    await posts.written();
    const reply = await post(posts, { user_id: "bob", reply_to: parent.toUpperCase() });
    const events = await posts.written();
    expect(events.find(({ subject }) => subject === "engagement.changed")).toEqual({
      key: `${parent}:reply:${reply}`,
      subject: "engagement.changed",
      messageId: `engagement:${parent}:reply:${reply}:1`,
      body: { drop_id: parent, kind: "reply", actor_id: reply },
    });
    expect(events).toHaveLength(2);
    await posts.countAll();
    expect(await posts.call.getCounts({ drop_ids: [parent] })).toEqual({
      counts: [{ drop_id: parent, likes: 0, shares: 0, replies: 1 }],
    });
    const listed = await posts.call.listReplies({ drop_id: parent });
    expect(listed.replies.map(({ drop_id, reply_to }) => [drop_id, reply_to])).toEqual([[reply, parent]]);

    const { tombstone } = await posts.call.deleteDrop({ drop_id: reply, user_id: "bob" });
    expect(tombstone).toEqual({ id: reply, former_type: "reply", deleted_at: expect.any(Number) });
    expect((await posts.written()).map(({ subject, messageId }) => `${subject} ${messageId}`).sort()).toEqual([
      `drops.deleted drop_deleted:${reply}`,
      `engagement.changed engagement:${parent}:reply:${reply}:2`,
    ]);
    await posts.countAll();
    expect((await posts.call.getCounts({ drop_ids: [parent] })).counts[0]?.replies).toBe(0);
    expect((await posts.call.listReplies({ drop_id: parent })).replies).toEqual([]);
  });

  test("a reply needs an existing drop", async () => {
    const gone = await post(posts);
    await posts.call.deleteDrop({ drop_id: gone, user_id: "ada" });
    await posts.written();
    for (const reply_to of [UNKNOWN, gone, "https://far.example/1"]) {
      expect(await refusal(post(posts, { reply_to }))).toMatch(/^INVALID_ARGUMENT reply_to/);
      expect(await refusal(post(posts, { reply_to, idempotency_key: "for-nothing" }))).toMatch(
        /^INVALID_ARGUMENT reply_to/,
      );
    }
    expect(await posts.written()).toEqual([]);
    expect(await posts.db.query("SELECT FROM posts.idempotency WHERE key = 'for-nothing'")).toEqual([]);
  });

  test("of drops made at once each is judged by itself, whatever they need", async () => {
    const parent = await post(posts);
    await posts.written();
    const longAgo = Date.now() - 400 * DAY;
    const drafts = Array.from({ length: 8 }, (_, n) => [
      { body: `plain ${n}` },
      { body: `reply ${n}`, reply_to: parent },
      { body: `to nothing ${n}`, reply_to: UNKNOWN },
      { body: `keyed ${n}`, idempotency_key: `at-once-${n % 4}` },
      { body: `imported ${n}`, created_at: longAgo + n },
    ]).flat();
    const outcomes = await Promise.allSettled(drafts.map((draft) => post(posts, draft)));
    const refused = drafts.filter((_, n) => outcomes[n]?.status === "rejected");
    expect(refused).toEqual(drafts.filter(({ body }) => body.startsWith("to nothing")));
    const made = new Set(outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? outcome.value : [])));
    expect(made.size).toBe(8 + 8 + 4 + 8);
    const written = await posts.written();
    expect(
      written
        .filter(({ subject }) => subject === "drops.created")
        .map(({ key }) => key)
        .sort(),
    ).toEqual([...made].sort());
    expect(written.filter(({ subject }) => subject !== "drops.created")).toHaveLength(8);
    expect((await posts.call.listReplies({ drop_id: parent, page_size: 20 })).replies).toHaveLength(8);
  });

  test("a reply with a key is made once, and answered after its parent is gone", async () => {
    const parent = await post(posts);
    const draft = { reply_to: parent, idempotency_key: "reply", user_id: "bob" };
    const reply = await post(posts, draft);
    await posts.call.deleteDrop({ drop_id: parent, user_id: "ada" });
    expect(await post(posts, draft)).toBe(reply);
  });

  test("a drop can reply to a remote one", async () => {
    const uri = "https://far.example/notes/1";
    await posts.call.putRemoteObject({ uri, kind: 1, document: "{}", created_at: Date.now() });
    await posts.written();
    const reply = await post(posts, { reply_to: uri });
    expect((await posts.written()).map(({ subject }) => subject)).toEqual(["drops.created", "engagement.changed"]);
    expect((await posts.call.listReplies({ drop_id: uri })).replies.map(({ drop_id }) => drop_id)).toEqual([reply]);
    const { tombstone } = await posts.call.deleteDrop({ drop_id: reply, user_id: "ada" });
    expect(tombstone?.former_type).toBe("reply");
    expect((await posts.call.listReplies({ drop_id: uri })).replies).toEqual([]);
  });

  test("replies are paged oldest first", async () => {
    const parent = await post(posts);
    const replies: string[] = [];
    for (let n = 0; n < 7; n++) replies.push(await post(posts, { reply_to: parent }));
    const seen: string[] = [];
    for (let page_token = ""; ; ) {
      const page = await posts.call.listReplies({ drop_id: parent, page_size: 3, page_token });
      seen.push(...page.replies.map(({ drop_id }) => drop_id));
      page_token = page.next_page_token;
      if (page_token === "") break;
    }
    expect(seen).toEqual(replies);
    expect(await refusal(posts.call.listReplies({ drop_id: UNKNOWN }))).toMatch(/^NOT_FOUND drop_id/);
  });

  test("many drops are answered in the order asked for, tombstones too, without unknown ones", async () => {
    const [one, two] = [await post(posts, { body: "one" }), await post(posts, { body: "two" })];
    await posts.call.deleteDrop({ drop_id: one, user_id: "ada" });
    const { results } = await posts.call.getDrops({
      drop_ids: [two, UNKNOWN, one, "https://far.example/9", two.toUpperCase()],
    });
    expect(results.map(({ drop, tombstone }) => [drop?.body, tombstone?.id])).toEqual([
      ["two", undefined],
      [undefined, one],
      ["two", undefined],
    ]);
    expect(await posts.call.getDrops({})).toEqual({ results: [] });
  });

  // Invariant 11.
  test("pages of the longest drops that are allowed fit a message, also where these are twenty times as long", async () => {
    const config = { ...POSTS_CONFIG, maxBodyCharacters: 100_000 };
    const long = await startPosts(await newDatabase(), { config });
    try {
      const parent = await post(long);
      const body = "\u{1f600}".repeat(config.maxBodyCharacters);
      const replies: string[] = [];
      for (let n = 0; n < 12; n++) replies.push(await post(long, { reply_to: parent, body }));
      const seen: string[] = [];
      for (let page_token = "", pages = 0; pages === 0 || page_token !== ""; pages++) {
        const page = await long.call.listReplies({ drop_id: parent, page_size: 100, page_token });
        seen.push(...page.replies.map(({ drop_id }) => drop_id));
        page_token = page.next_page_token;
      }
      expect(seen).toEqual(replies);
      expect((await long.call.listReplies({ drop_id: parent })).replies.length).toBeLessThan(12);
      expect(await refusal(long.call.getDrops({ drop_ids: replies }))).toBe(
        "INVALID_ARGUMENT drop_ids: must have at most 10 entries",
      );
      expect((await long.call.getDrops({ drop_ids: replies.slice(0, 10) })).results).toHaveLength(10);
    } finally {
      await long.stop();
    }
  });
});
