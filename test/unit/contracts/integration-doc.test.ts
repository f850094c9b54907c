import { readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { z } from "zod";
import { ACTIVITY_PAYLOADS } from "../../../src/contracts/activity.js";
import { CHANNELS, parsePublished, publishedId, subjectOf } from "../../../src/contracts/channels.js";
import { PAYLOADS } from "../../../src/contracts/payloads.js";
import { STREAM_EVENTS } from "../../../src/contracts/stream-events.js";
import { RESET_REASONS } from "../../../src/gateway/resume.js";
import { ListServiceService } from "../../../src/gen/avion/lists.js";
import { PostServiceService } from "../../../src/gen/avion/posts.js";
import { UserServiceService } from "../../../src/gen/avion/users.js";

const DOCUMENT = readFileSync("docs/integration.md", "utf8");

/** The cells of the table under a heading, which may name another event, too. */
function rowsUnder(heading: string): string[][] {
  const literal = heading.replaceAll(/[()]/g, "\\$&").replace("### ", "### (?:\\w+, )?");
  const [, text = ""] = DOCUMENT.split(new RegExp(`\n${literal}(?:, \\w+)?\n`));
  const [table = ""] = /^\|.*\n\|[ -|]*\n((?:\|.*\n)+)/m.exec(text)?.slice(1) ?? [];
  return table
    .trim()
    .split("\n")
    .map((row) => row.split("|").map((cell) => cell.trim()))
    .map(([, first = "", ...others]) => [first.replaceAll("`", ""), ...others.slice(0, -1)]);
}

/** The rows of fields, with the words of other events to which they refer in their places, and without links. */
const fieldsUnder = (heading: string): string[][] =>
  rowsUnder(heading).map(([name = "", type = "", required = "", text = ""]) => {
    const plain = text.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1");
    const meaning = plain.replace(/^as of `(\w+)`/, (_, other) => {
      const row = fieldsUnder(`### ${other}`).find(([field]) => field === name);
      return row?.[3] ?? "";
    });
    return [name, type, required, meaning];
  });

/** Name, type, whether it is required, and meaning of each field that a sender may set. */
function fieldsOf(schema: z.ZodType): string[][] {
  const { properties = {}, required = [] } = z.toJSONSchema(schema, { io: "input" });
  return Object.entries(properties).map(([name, property]) => {
    const { type, description, enum: values = [] } = property as z.core.JSONSchema.BaseSchema;
    const meaning =
      description ??
      values
        .map((value) => `\`${value}\``)
        .join(", ")
        .replace(/, ([^,]*)$/, " or $1");
    return [name, [type].flat().join(" or "), required.includes(name) ? "yes" : "no", meaning];
  });
}

test.each(CHANNELS)("the fields of the event %s and their meanings are those of its payload", (event) => {
  const described = [...fieldsUnder(`### ${event}`), ...fieldsUnder("### Every event")];
  expect(new Set(described)).toEqual(new Set(fieldsOf({ ...PAYLOADS, ...ACTIVITY_PAYLOADS }[event])));
});

test.each(Object.entries(STREAM_EVENTS))("the fields of the stream event %s are those that it has", (event, schema) => {
  const heading = (CHANNELS as readonly string[]).includes(event) ? `### ${event} (on the stream)` : `### ${event}`;
  expect(new Set(fieldsUnder(heading))).toEqual(new Set(fieldsOf(schema)));
});

test("subjects and message ids are those under which the service stores events", () => {
  const fields = {
    drop_id: "d",
    user_id: "u",
    created_at: 1,
    visibility: "public",
    revision: 3,
    updated_at: 1,
    standing: "limited",
    author_id: "a",
    kind: "like",
    active: true,
  };
  const pairs = { follower_id: "f", following_id: "g", target_id: "t", version: 7 };
  const edge = { "<follower>": "f", "<following>": "g" };
  const named = { "<drop>": "d", ...edge, "<user>": "u", "<target>": "t", "<version>": "7", "<revision>": "3" };
  const rows = CHANNELS.map((event) => {
    const body = Buffer.from(JSON.stringify({ ...fields, ...pairs }));
    return [event, subjectOf(event), publishedId(parsePublished(event, body, 10))];
  });
  const described = rowsUnder("## Publish durably").map((row) =>
    row.map((cell) =>
      Object.entries(named).reduce((id, [name, value]) => id.replace(name, value), cell.replaceAll("`", "")),
    ),
  );
  expect(described).toEqual(rows);
});

test("each method of an upstream that the page names is one of its proto", () => {
  const methods = Object.entries({
    UserService: UserServiceService,
    PostService: PostServiceService,
    ListService: ListServiceService,
  }).flatMap(([service, definition]) =>
    Object.values(definition).map(({ path }) => `${service}.${path.split("/").at(-1)}`),
  );
  const described = rowsUnder("## Serve reads: UserService and PostService").map(([method]) => method);
  expect(described.length).toBeGreaterThan(5);
  expect(methods).toEqual(expect.arrayContaining(described));
});

test("each reason of a reset is named", () => {
  const [row = ""] = /^\| `reason` .*$/m.exec(DOCUMENT) ?? [];
  const [, ...reasons] = [...row.matchAll(/`(\w+)`/g)].map(([, name]) => name);
  // Fan-out and erasures send the last two.
  expect(reasons).toEqual([...RESET_REASONS, "relations_unknown", "user_erased"]);
});
