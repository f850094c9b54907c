import { expect, test } from "@jest/globals";
import { type GetDropResponse, RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { DAY } from "../../src/kernel/time.js";
import { importedId } from "../../src/posts/drops/ids.js";
import { countingRows } from "../support/counted-rows.js";
import { describePostsWithUsers } from "../support/describe-posts-with-users.js";
import { type PostsHarness, post, refusal, startPosts } from "../support/posts.js";
import { oneOf, seeded } from "../support/random.js";

const { PUBLIC, FOLLOWERS, DIRECT } = Visibility;
const EVE = "https://far.example/users/eve";

const nameOf = ({ drop, remote, tombstone }: GetDropResponse): string =>
  drop?.drop_id ?? remote?.uri ?? `dead ${tombstone?.id}`;

type Line = readonly [depth: number, name: string];

/** All replies, in pages. */
async function repliesOf({ call }: PostsHarness, drop_id: string, viewer_id = "", page_size = 0): Promise<Line[]> {
  const lines: Line[] = [];
  for (let page_token = ""; ; ) {
    const page = await call.getThread({ drop_id, viewer_id, page_size, page_token });
    lines.push(...page.replies.map(({ reply, depth }): Line => [depth, nameOf(reply as GetDropResponse)]));
    expect(page.replies.length).toBeLessThanOrEqual(page_size || 100);
    page_token = page.next_page_token;
    if (page_token === "") return lines;
  }
}

interface Made {
  readonly name: string;
  readonly author: string;
  readonly isOpen: boolean;
  readonly children: Made[];
  isDead: boolean;
}

/** What a thread shows, told from the tree. */
function linesOf(node: Made, sees: (reply: Made) => boolean, depth = 1): Line[] {
  if (depth > 6) return [];
  return node.children.filter(sees).flatMap((reply): Line[] => {
    const below = linesOf(reply, sees, depth + 1);
    if (!reply.isDead) return [[depth, reply.name], ...below];
    return below.length === 0 ? [] : [[depth, `dead ${reply.name}`], ...below];
  });
}

describePostsWithUsers("threads", (running) => {
  const posts = (): PostsHarness => running.posts;
  let made = 0;
  const put = async (fields: object = {}): Promise<string> => {
    const uri = `https://far.example/notes/t${++made}`;
    await posts().call.putRemoteObject({
      ...{ uri, kind: RemoteKind.DROP, actor_uri: EVE, visibility: PUBLIC, document: "{}", ...fields },
    });
    return uri;
  };

  /** Resolves to the answer of a posts service on the same database, and the number of rows that it read for it. */
  const reading = async <Answer>(ask: (counted: PostsHarness) => Promise<Answer>) => {
    let rows = 0;
    const counting = countingRows(posts().db, ({ read }) => {
      rows += read;
    });
    const counted = await startPosts(counting, running.asked);
    rows = 0;
    const answer = await ask(counted);
    await counted.stop();
    return { answer, rows };
  };

  test("pages of every size show the same: replies depth first, of all servers, for each viewer", async () => {
    const random = seeded(7);
    const start = Date.now() - DAY / 24;
    running.world.follow("tim", "ann");
    running.world.block("tim", "bea");
    const authors = ["ann", "bea", "col"];
    const root: Made = { name: await post(posts()), author: "ada", isOpen: true, children: [], isDead: false };
    const nodes = [root];
    for (let n = 0; n < 120; n++) {
      const parent = oneOf(random, random() < 0.2 ? nodes.slice(-3) : nodes);
      const isRemote = random() < 0.25;
      const author = isRemote ? EVE : oneOf(random, authors);
      const isOpen = random() < 0.8;
      const reply = { visibility: isOpen ? PUBLIC : FOLLOWERS, reply_to: parent.name, created_at: start + n };
      const name = isRemote ? await put(reply) : await post(posts(), { user_id: author, ...reply });
      const node = { name, author, isOpen, children: [], isDead: false };
      parent.children.push(node);
      nodes.push(node);
    }
    for (const node of nodes.slice(1).filter(() => random() < 0.25)) {
      node.isDead = true;
      if (node.author === EVE) await posts().call.deleteRemoteObject({ uri: node.name });
      else await posts().call.deleteDrop({ drop_id: node.name, user_id: node.author });
    }
    const viewers: Record<string, (reply: Made) => boolean> = {
      "": ({ isOpen }) => isOpen,
      tim: ({ isOpen, author }) => author !== "bea" && (isOpen || author === "ann"),
    };
    for (const [viewer, sees] of Object.entries(viewers)) {
      const expected = linesOf(root, sees);
      expect(expected.length).toBeGreaterThan(15);
      for (const size of [0, 1, 2, 7]) expect(await repliesOf(posts(), root.name, viewer, size)).toEqual(expected);
    }
  });

  test("a drop has the nearest 50 above it, root first, without those that the viewer may not see", async () => {
    const first = await put();
    const chain = [first];
    for (let n = 0; n < 60; n++)
      chain.push(await post(posts(), { user_id: `c${n}`, reply_to: chain.at(-1) as string }));
    const drop_id = chain[60] as string;
    await posts().call.deleteDrop({ drop_id: chain[55] as string, user_id: "c54" });
    running.world.block("uma", "c52");
    const thread = await posts().call.getThread({ drop_id, viewer_id: "uma" });
    const above = chain.slice(10, 60).filter((id) => id !== chain[53]);
    expect(thread.ancestors.map(nameOf)).toEqual(above.map((id) => (id === chain[55] ? `dead ${id}` : id)));
    expect(thread.drop?.drop?.drop_id).toBe(drop_id);
    const top = await posts().call.getThread({ drop_id: first });
    expect(top.drop?.remote?.uri).toBe(first);
    expect(top.ancestors).toEqual([]);
    expect(top.replies.map(({ depth }) => depth)).toEqual([1, 2, 3, 4, 5, 6]);
  });

  test("documents that reply to each other in a circle are a finite thread", async () => {
    const [one, two] = ["https://far.example/notes/one", "https://far.example/notes/two"];
    await put({ uri: one, reply_to: two });
    await put({ uri: two, reply_to: one });
    const thread = await posts().call.getThread({ drop_id: one });
    expect(thread.ancestors.map(nameOf)).toEqual([two]);
    expect(thread.replies.map(({ reply }) => nameOf(reply as GetDropResponse))).toEqual([two]);
  });

  test("what the viewer may not see has no thread, and a token is of one thread and viewer", async () => {
    const drop_id = await post(posts(), { visibility: FOLLOWERS });
    for (const viewer_id of ["", "vic"])
      expect(await refusal(posts().call.getThread({ drop_id, viewer_id }))).toBe(
        "NOT_FOUND drop_id: there is no such drop",
      );
    expect((await posts().call.getThread({ drop_id, viewer_id: "ada" })).drop?.drop?.drop_id).toBe(drop_id);
    for (let n = 0; n < 2; n++) await post(posts(), { reply_to: drop_id });
    const { next_page_token: page_token } = await posts().call.getThread({ drop_id, viewer_id: "ada", page_size: 1 });
    const other = posts().call.getThread({ drop_id, viewer_id: "", page_token });
    expect(await refusal(other)).toMatch(/^INVALID_ARGUMENT page_token: /);
    expect(await refusal(posts().call.getThread({ drop_id: "x" }))).toBe("INVALID_ARGUMENT drop_id: is not a UUID");
    expect(await refusal(posts().call.getThread({ drop_id, page_size: -1 }))).toMatch(/^INVALID_ARGUMENT page_size: /);
  });

  test("a reply that is hidden between two pages takes what hangs from it along", async () => {
    const drop_id = await post(posts());
    const reply = await post(posts(), { user_id: "wes", reply_to: drop_id });
    for (let n = 0; n < 3; n++) await post(posts(), { reply_to: reply });
    const last = await post(posts(), { reply_to: drop_id });
    const ask = { drop_id, viewer_id: "xia", page_size: 2 };
    const { next_page_token: page_token } = await posts().call.getThread(ask);
    running.world.block("xia", "wes");
    const { replies } = await posts().call.getThread({ ...ask, page_token });
    expect(replies.map((line) => nameOf(line.reply as GetDropResponse))).toEqual([last]);
  });

  test("a page costs the same whether 10 or 20,000 reply, and passes replies that are hidden or deleted", async () => {
    const { db } = posts();
    const drop_id = await post(posts());
    const now = Date.now() - DAY / 24;
    const insert = (count: number, from: number, columns: string, values: string) =>
      db.query(
        `INSERT INTO posts.drops (drop_id, user_id, visibility, recipients, summary, body, updated_at, changed_at, reply_to${columns})
         SELECT (left($1, 9) || substr($1, 10, 4) || '-7' || lpad(to_hex(n / 65536), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
           'spam' || (n % 50), 1, '{}', '', 'x', 0, 0, $2${values} FROM generate_series($3::integer, $4::integer) n`,
        [importedId(now), drop_id, from, from + count - 1],
      );
    await insert(20_000, 1, "", "");
    await insert(2_000, 30_001, ", deleted_at", ", 1");
    const { answer: first, rows } = await reading(({ call }) => call.getThread({ drop_id }));
    expect(rows).toBeLessThan(500);
    expect(first.replies).toHaveLength(100);
    // All of the 2,000 are passed, and most of the 20,000 are between blocked people.
    for (let n = 0; n < 50; n++) running.world.block("yan", `spam${n}`);
    const last = await post(posts(), { user_id: "zed", reply_to: drop_id });
    const lines = await repliesOf(posts(), drop_id, "yan");
    expect(lines).toEqual([[1, last]]);
  });

  test("a chain of 10,000 costs no more than its nearest 50 and its first six levels", async () => {
    const { db } = posts();
    const [from, length] = [Date.now() - DAY / 24, 10_000];
    const id = (n: string): string =>
      `(left($1, 15) || lpad(to_hex((${n}) / 4096), 3, '0') || '-8000-' || lpad(to_hex(${n}), 12, '0'))::uuid`;
    const rows = await db.query<{ drop_id: string }>(
      `INSERT INTO posts.drops (drop_id, user_id, visibility, recipients, summary, body, updated_at, changed_at, reply_to)
       SELECT ${id("n")}, 'deep', 1, '{}', '', 'x', 0, 0, CASE WHEN n > 0 THEN ${id("n - 1")}::text END
       FROM generate_series(0, $2::integer - 1) n RETURNING drop_id`,
      [importedId(from), length],
    );
    const ids = rows.map(({ drop_id }) => drop_id).sort();
    const [top, bottom] = [ids[0] as string, ids.at(-1) as string];
    const below = await reading(({ call }) => call.getThread({ drop_id: bottom }));
    expect(below.answer.ancestors.map(nameOf)).toEqual(ids.slice(-51, -1));
    const above = await reading((counted) => repliesOf(counted, top));
    expect(above.answer).toEqual(ids.slice(1, 7).map((name, n) => [n + 1, name]));
    expect(below.rows).toBeLessThan(50 * 50);
    expect(above.rows).toBeLessThan(100);
  });

  test("direct replies are in the threads of those whom they are for", async () => {
    const drop_id = await post(posts());
    const direct = await post(posts(), { visibility: DIRECT, recipients: ["bob"], reply_to: drop_id });
    expect(await repliesOf(posts(), drop_id, "bob")).toEqual([[1, direct]]);
    expect(await repliesOf(posts(), drop_id, "cid")).toEqual([]);
  });
});
