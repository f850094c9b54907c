import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { compareEntries } from "../../../src/contracts/timelines.js";
import type { GetTimelineRequest } from "../../../src/gen/avion/timeline.js";
import { AppError } from "../../../src/kernel/errors.js";
import { fromToken, startOf, toToken } from "../../../src/timeline/position.js";
import { parsePageRequest, parseUser } from "../../../src/timeline/request.js";

const request = (stated: Partial<GetTimelineRequest>): GetTimelineRequest => ({
  user_id: "ada",
  limit: 0,
  since_id: "",
  max_id: "",
  min_id: "",
  ...stated,
});
const position = fc.record({
  score: fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }),
  drop: fc.string({ unit: "binary", maxLength: 40 }),
});

test("a token says its position in full, in characters safe anywhere", () => {
  fc.assert(
    fc.property(position, (place) => {
      const token = toToken(place);
      expect(token).toMatch(/^~\d+\.[A-Za-z0-9_-]*$/);
      expect(fromToken(token)).toEqual(place);
    }),
    { numRuns: 1_000 },
  );
});

test.each([
  "",
  "d1",
  "~floor",
  "~1",
  "~.YQ",
  "~-1.YQ",
  "~1.Y!",
  "~01.YQ",
  "~1.YR",
  "~1.YQ==",
  "~9007199254740992.YQ",
  " ~1.YQ",
  "~1.YQ\n",
  "~1.gICA",
])("%j is no token", (text) => {
  expect(fromToken(text)).toBeUndefined();
});

test("the longest id makes a token that is taken back", () => {
  const token = toToken({ score: Number.MAX_SAFE_INTEGER, drop: "é".repeat(64) });
  expect(parsePageRequest(request({ max_id: token })).cursor).toEqual({ kind: "max_id", text: token });
});

test("positions are ordered by time, then by bytes; the start of a ms is before all of it", () => {
  fc.assert(
    fc.property(position, position, position, (a, b, c) => {
      const byBytes = a.score - b.score || Buffer.compare(Buffer.from(a.drop), Buffer.from(b.drop));
      expect(Math.sign(compareEntries(a, b))).toBe(Math.sign(byBytes));
      const sorted = [a, b, c].sort(compareEntries);
      expect(compareEntries(sorted[0] as typeof a, sorted[2] as typeof a)).toBeLessThanOrEqual(0);
      if (a.drop !== "") expect(compareEntries(startOf(a.score), a)).toBeLessThan(0);
    }),
  );
});

test.each<[Partial<GetTimelineRequest>, number, unknown]>([
  [{}, 20, undefined],
  [{ limit: 1 }, 1, undefined],
  [{ limit: 100 }, 100, undefined],
  [{ since_id: "d1" }, 20, { kind: "since_id", text: "d1" }],
  [{ max_id: "~1.YQ", limit: 5 }, 5, { kind: "max_id", text: "~1.YQ" }],
  [{ min_id: "https://example.org/1" }, 20, { kind: "min_id", text: "https://example.org/1" }],
])("%j asks for %i from %j", (stated, limit, cursor) => {
  expect(parsePageRequest(request(stated))).toEqual({ limit, cursor });
});

test.each<[Partial<GetTimelineRequest>, string]>([
  [{ limit: -1 }, "limit"],
  [{ limit: 101 }, "limit"],
  [{ limit: 2 ** 31 - 1 }, "limit"],
  [{ since_id: "a", max_id: "b" }, "max_id"],
  [{ since_id: "a", min_id: "b" }, "min_id"],
  [{ max_id: "a", min_id: "a" }, "min_id"],
  [{ max_id: "~floor" }, "max_id"],
  [{ min_id: "x".repeat(257) }, "min_id"],
])("%j is refused by %s", (stated, field) => {
  expect(() => parsePageRequest(request(stated))).toThrow(
    expect.objectContaining({ code: "invalid", message: expect.stringMatching(`^${field}: `) }),
  );
});

test.each(["", "x".repeat(129), "\ud800"])("the user %j is refused", (user) => {
  expect(() => parseUser(user)).toThrow(AppError);
  expect(() => parseUser(user)).toThrow(/^user_id: /);
});
