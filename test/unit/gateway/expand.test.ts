import { expect, test } from "@jest/globals";
import { createExpand } from "../../../src/gateway/expand.js";
import { GetDropResponse, RemoteKind, Visibility } from "../../../src/gen/avion/posts.js";
import { GetTimelineResponse } from "../../../src/gen/avion/timeline.js";
import type { ReadShownDrops } from "../../../src/upstreams/shown-drops.js";

const page = (...drop_ids: string[]) =>
  GetTimelineResponse.fromPartial({ drop_ids, next_max_id: "t", items: drop_ids.map((drop_id) => ({ drop_id })) });
const always = async () => true;

/** A posts service that answers nobody until `answer` is called. */
function hanging() {
  const waiting: { readonly viewer: string; readonly answer: () => void }[] = [];
  const readDrops: ReadShownDrops = ({ viewer }) =>
    new Promise((resolve) => waiting.push({ viewer, answer: () => resolve(new Map()) }));
  return { readDrops, waiting };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test("items are in the order of the page; enumerations have their names, and a drop that is not shown is missing", async () => {
  const texts = { visibility: Visibility.PUBLIC, recipients: [], mentions: [], attachments: [] };
  const [original, remote] = [
    { ...texts, drop_id: "o" },
    { ...texts, uri: "https://far.example/1" },
  ];
  const shown = [
    { drop: { ...texts, drop_id: "b", original }, viewer: { liked: true } },
    { remote: { ...remote, kind: RemoteKind.DROP } },
  ].map((result) => GetDropResponse.fromPartial(result));
  const byId = new Map(shown.map((result) => [result.drop?.drop_id ?? result.remote?.uri ?? "", result]));
  const expand = createExpand({ readDrops: async () => byId, mayCall: always });
  const expanded = await expand(page("https://far.example/1", "gone", "b"), "ada");
  expect(JSON.parse(JSON.stringify(expanded))).toMatchObject({
    drop_ids: ["https://far.example/1", "gone", "b"],
    degraded: false,
    items: [
      { drop: { remote: { visibility: "VISIBILITY_PUBLIC", kind: "REMOTE_KIND_DROP" } } },
      { drop_id: "gone" },
      {
        drop: {
          drop: { visibility: "VISIBILITY_PUBLIC", original: { visibility: "VISIBILITY_PUBLIC" } },
          viewer: { liked: true },
        },
      },
    ],
  });
  expect(expanded.items[1]).toEqual({
    drop_id: "gone",
    created_at: 0,
    repost_of: "",
    reposted_by: [],
    drop: undefined,
  });
});

test("a page stays where its drops cannot be read, and says so", async () => {
  const readDrops = () => Promise.reject(new Error("away"));
  const expanded = await createExpand({ readDrops, mayCall: always })(page("a", "b"), "ada");
  expect(expanded).toMatchObject({ drop_ids: ["a", "b"], next_max_id: "t", degraded: true });
  expect(expanded.items).toEqual(page("a", "b").items);
});

test("a viewer whose calls hang takes at most half of the places", async () => {
  const { readDrops, waiting } = hanging();
  const expand = createExpand({ readDrops, mayCall: always });
  const slow = Array.from({ length: 60 }, () => expand(page("a"), "slow"));
  await turn();
  expect(waiting).toHaveLength(8);
  const other = expand(page("a"), "other");
  await turn();
  waiting.find(({ viewer }) => viewer === "other")?.answer();
  expect((await other).degraded).toBe(false);
  // The rest of the pages do not wait: they would pile up.
  const first = await Promise.race(slow);
  expect(first.degraded).toBe(true);
  const ended = Promise.all(slow);
  while (waiting.length > 0) {
    for (const { answer } of waiting.splice(0)) answer();
    await turn();
  }
  expect((await ended).filter(({ degraded }) => degraded)).toHaveLength(60 - 8 - 33);
});

test("all viewers together take a bounded number of places, and no more wait than that leaves", async () => {
  const { readDrops, waiting } = hanging();
  const expand = createExpand({ readDrops, mayCall: always });
  const pages = Array.from({ length: 200 }, (_, n) => expand(page("a"), `user${n}`));
  await turn();
  expect(waiting).toHaveLength(16);
  const ended = Promise.all(pages);
  while (waiting.length > 0) {
    for (const { answer } of waiting.splice(0)) answer();
    await turn();
  }
  expect((await ended).filter(({ degraded }) => degraded)).toHaveLength(200 - 16 - 64);
});

test("each further call of a page counts for its viewer, who is refused it at last", async () => {
  let left = 2;
  const readDrops: ReadShownDrops = async ({ beforeRetry }) => {
    for (let call = 0; call < 5; call++) await beforeRetry();
    return new Map();
  };
  const expand = createExpand({ readDrops, mayCall: async () => left-- > 0 });
  expect((await expand(page("a"), "ada")).degraded).toBe(true);
  expect(left).toBe(-1);
});
