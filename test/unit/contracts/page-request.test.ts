import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { fromToken, parsePageRequest, parseUser, toToken } from "../../../src/contracts/page-request.js";
import { compareEntries } from "../../../src/contracts/timelines.js";
import type { GetTimelineRequest } from "../../../src/gen/avion/timeline.js";
import { AppError } from "../../../src/kernel/errors.js";
import { startOf } from "../../../src/reads/pages.js";
import { FLOOR_MEMBER } from "../../../src/state/keys.js";

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
  drop: fc.string({ unit: "binary", minLength: 1, maxLength: 40 }),
});

test("a token holds its whole position, in URL-safe characters", () => {
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
  "~0.",
  "~1.",
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

test("the token of the longest id is accepted", () => {
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
      expect(compareEntries(startOf(a.score), a)).toBeLessThan(0);
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

// Invariant 6.
test("a token yields the position it was made of, and no other text is a token", () => {
  for (const drop of ["a", "0190a000-0000-7000-8000-000000000000", "https://far.example/é", "x".repeat(128)]) {
    for (const score of [0, 1, Date.now(), Number.MAX_SAFE_INTEGER]) {
      const token = toToken({ score, drop });
      expect(fromToken(token)).toEqual({ score, drop });
      for (const other of [
        `${token}=`,
        `${token} `,
        ` ${token}`,
        token.slice(1),
        token.replace("~", "~0"),
        `${token}\n`,
      ])
        expect(fromToken(other)).toBeUndefined();
    }
  }
  for (const score of ["", "-1", "1.5", "1e3", "9007199254740992", "9".repeat(200), "NaN"])
    expect(fromToken(`~${score}.YQ`)).toBeUndefined();
  for (const drop of [FLOOR_MEMBER, "x".repeat(129)]) expect(fromToken(toToken({ score: 1, drop }))).toBeUndefined();
  expect(fromToken("~1._w")).toBeUndefined();
});
