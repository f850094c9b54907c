import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { compareBytes, dateOfId, decodeId, encodeId, fingerprint, idFault } from "../../../src/kernel/ids.js";
import { seeded, ulid, uuidV7 } from "../../support/random.js";

/** Any text without lone surrogates: what UTF-8 can carry. */
const text = fc.oneof(
  fc.string({ unit: "binary", maxLength: 80 }),
  fc.string({ unit: "grapheme", maxLength: 40 }),
  fc.string({ unit: fc.constantFrom("a", "Z", "-", "_", "=", "~", "\ud7ff", "\uffff", "\u{10000}"), maxLength: 70 }),
);

// Invariant 9.
test("an encoded id is a token of its alphabet and decodes to the same id", () => {
  fc.assert(
    fc.property(text, (id) => {
      const token = encodeId(id);
      expect(token).toMatch(/^(=[A-Za-z0-9_-]*|[A-Za-z0-9_-]{1,64})$/);
      expect(decodeId(token)).toBe(id);
    }),
    { numRuns: 2_000 },
  );
});

// Invariant 9.
test("two ids share no token, also where one looks like the encoding of the other", () => {
  fc.assert(
    fc.property(text, text, (a, b) => {
      const [first, second, nested] = [encodeId(a), encodeId(b), encodeId(encodeId(a))];
      expect(first === second).toBe(a === b);
      if (first !== a) expect(nested).not.toBe(first);
    }),
    { numRuns: 2_000 },
  );
});

test("plain ids stay readable up to 64 characters", () => {
  const longest = "a".repeat(64);
  expect(encodeId("Ada_Lovelace-1")).toBe("Ada_Lovelace-1");
  expect(encodeId(longest)).toBe(longest);
  expect(encodeId(`${longest}a`)).toMatch(/^=/);
  // A trailing newline must not slip past the end of the pattern.
  expect(encodeId("ada\n")).toMatch(/^=/);
  expect(encodeId("")).toBe("=");
});

test("compareBytes is the order of Buffer.compare", () => {
  fc.assert(
    fc.property(text, text, (a, b) => {
      expect(Math.sign(compareBytes(a, b))).toBe(Buffer.compare(Buffer.from(a), Buffer.from(b)));
    }),
    { numRuns: 5_000 },
  );
  // U+FF5E sorts after U+1F600 in UTF-16 and before it in UTF-8.
  expect(compareBytes("～", "😀")).toBeLessThan(0);
  expect(compareBytes("é", "z")).toBeGreaterThan(0);
});

test("ids have 1 to 128 bytes of well-formed Unicode", () => {
  expect(idFault("a".repeat(128))).toBeUndefined();
  expect(idFault("é".repeat(64))).toBeUndefined();
  expect(idFault("")).toMatch(/empty/);
  expect(idFault("a".repeat(129))).toMatch(/128 bytes/);
  expect(idFault(`a${"é".repeat(64)}`)).toMatch(/128 bytes/);
  expect(idFault("a\ud800")).toMatch(/well-formed/);
});

test("UUIDv7 and ULID carry the time they were made with", () => {
  const random = seeded(7);
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2 ** 48 - 1 }), (ms) => {
      expect(dateOfId(uuidV7(random, ms))).toBe(ms);
      expect(dateOfId(uuidV7(random, ms).toUpperCase())).toBe(ms);
      expect(dateOfId(ulid(random, ms))).toBe(ms);
      expect(dateOfId(ulid(random, ms).toLowerCase())).toBe(ms);
    }),
  );
  // The examples of RFC 9562 (appendix A.6) and of the ULID specification.
  expect(dateOfId("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")).toBe(1_645_557_742_000);
  expect(dateOfId("01ARZ3NDEKTSV4RRFFQ69G5FAV")).toBe(1_469_922_850_259);
});

test.each([
  ["UUIDv4", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"],
  ["a UUIDv7 of another variant", "017F22E2-79B0-7CC3-C8C4-DC0C0C07398F"],
  ["a ULID beyond 48 bits", "81ARZ3NDEKTSV4RRFFQ69G5FAV"],
  ["a ULID with a letter Crockford left out", "01ARZ3NDEKTSV4RRFFQ69G5FAU"],
  ["a UUIDv7 with something behind it", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F\n"],
  ["a snowflake", "112233445566778899"],
])("%s carries no date", (_, id) => {
  expect(dateOfId(id)).toBeUndefined();
});

test("fingerprints are stable, 128 bits long and different for different text", () => {
  expect(fingerprint("abc")).toBe("ungWv48Bz-pBQUDeXa4iIw");
  expect(fingerprint(Buffer.from("abc"))).toBe(fingerprint("abc"));
  expect(fingerprint("abd")).not.toBe(fingerprint("abc"));
});
