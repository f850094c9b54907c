import { expect, test } from "@jest/globals";
import fc from "fast-check";
import {
  type Content,
  checkOf,
  greetingBlock,
  isSampled,
  notificationBlock,
  positionBlock,
  readContent,
  resetBlock,
} from "../../../src/gateway/notification.js";
import { encodeId } from "../../../src/kernel/ids.js";

const read = (value: unknown, id?: string) =>
  readContent(Buffer.from(typeof value === "string" ? value : JSON.stringify(value)), () => id);
const at = (seq: number) => ({ seq, incarnation: "k2", listing: "m5" });

test("a new drop says its id and time, in this order and nothing else", () => {
  const content = read({ created_at: 5, more: 1, drop_id: "d\n1", event: "new_drop" }) as Content;
  expect(notificationBlock(at(7), content)).toBe(
    'id: 7-k2-m5\nevent: new_drop\ndata: {"drop_id":"d\\n1","created_at":5}\n\n',
  );
});

test("a position that a live notification moved has its check, which another body changes", () => {
  const bodies = ["d1", "d2", "d1"].map((drop_id) => Buffer.from(JSON.stringify({ event: "drop_deleted", drop_id })));
  const [check, other, same] = bodies.map(checkOf);
  expect(positionBlock({ ...at(7), check }, "heartbeat")).toBe(`: heartbeat\nid: 7-k2-m5-${check}\n\n`);
  expect([same === check, other === check, checkOf(Buffer.alloc(0)) === check]).toEqual([true, false, false]);
});

test("a deleted drop says its id", () => {
  expect(read({ event: "drop_deleted", drop_id: "d", created_at: 3 })?.data).toBe('{"drop_id":"d"}');
});

test("an edited drop says its id and revision, ends with the deletion, and is judged by its byline", () => {
  expect(read({ event: "drop_edited", drop_id: "d", revision: 4, by: "ada", updated_at: 3 })).toMatchObject({
    ...{ data: '{"drop_id":"d","revision":4}', key: "drop_edited\nd\n4", endedBy: "drop_deleted\nd", by: "ada" },
  });
});

test("a notification passes through whole, is one of many of its drop, and is judged by its actor", () => {
  const told = { id: "1", kind: "LIKE", actor_id: "bob é", drop_id: "d", created_at: 5, count: 2 };
  const content = read({ event: "notification", ...told }, "notify:1") as Content;
  expect(JSON.parse(content.data)).toEqual(told);
  expect(content).toMatchObject({ key: "notification\nnotify:1", createdAt: 5, by: encodeId("bob é") });
  expect(read({ event: "notification", ...told }, "notify:2")?.key).not.toBe(content.key);
  const mark = read({ event: "notifications_read", up_to_id: "1" }, "m");
  expect(mark).toMatchObject({ data: '{"up_to_id":"1"}', key: "notifications_read\nm", by: undefined });
});

test("positions at the same drop are one event each: a user may come back to a drop, in several timelines", () => {
  const position = { event: "new_position", timeline: "home", drop_id: "d", version: 1 };
  expect(read(position, "new_position:ada:home:1")?.key).toBe("new_position\nnew_position:ada:home:1");
  expect(read({ ...position, version: 3 }, "new_position:ada:home:3")?.key).toContain("home:3");
});

test("other events pass through whole, deduplicated by their message id", () => {
  const content = read({ event: "xp_earned", points: 3 }, "m1");
  expect(content).toMatchObject({ event: "xp_earned", data: '{"points":3}', key: "xp_earned\nm1" });
  expect(read({ event: "xp_earned", points: 3 })?.key).toBeUndefined();
});

test.each([
  "",
  "[]",
  "null",
  "7",
  "{",
  '{"event":5}',
  '{"event":"a\\nid: 9"}',
  '{"event":"A"}',
  '{"drop_id":"d"}',
  "\u00ff",
])("%p is no notification", (body) => {
  expect(read(body)).toBeUndefined();
});

test("positions and resets are blocks of their own", () => {
  expect(greetingBlock(at(3), 2_500)).toBe("retry: 2500\n: connected\nid: 3-k2-m5\n\n");
  expect(greetingBlock(at(3), 2_500, "too_old")).toBe(
    'retry: 2500\n: connected\nid: 3-k2-m5\nevent: reset\ndata: {"reason":"too_old"}\n\n',
  );
  expect(positionBlock(at(3), "heartbeat")).toBe(": heartbeat\nid: 3-k2-m5\n\n");
  expect(resetBlock(at(4), "too_old")).toBe('id: 4-k2-m5\nevent: reset\ndata: {"reason":"too_old"}\n\n');
});

test("a drop is sent as JSON would write it, whatever its id and time are", () => {
  const time = fc.oneof(fc.integer(), fc.double(), fc.maxSafeInteger(), fc.constant(undefined));
  fc.assert(
    fc.property(fc.constantFrom("new_drop", "drop_deleted"), fc.string({ unit: "binary" }), time, (event, id, at) => {
      const content = read({ event, drop_id: id, created_at: at }) as Content;
      const said = JSON.parse(JSON.stringify({ drop_id: id, ...(event === "new_drop" ? { created_at: at } : {}) }));
      expect(content.data).toBe(JSON.stringify(said));
      expect(content.key).toBe(`${event}\n${id}`);
      expect(content.createdAt).toBe(JSON.parse(JSON.stringify({ at })).at ?? undefined);
    }),
    {
      examples: [
        ["new_drop", "a plain one", 0],
        ["new_drop", 'a " quote', 1],
        ["drop_deleted", "plain", undefined],
      ],
    },
  );
});

test.each([
  ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true],
  ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03", true],
  ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", false],
  ["", false],
  [undefined, false],
])("whether the trace %p is recorded: %p", (traceparent, recorded) => {
  expect(isSampled(traceparent)).toBe(recorded);
});
