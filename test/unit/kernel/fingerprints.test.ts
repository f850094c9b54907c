import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { Fingerprints } from "../../../src/kernel/fingerprints.js";

const has = (held: Fingerprints, text: string): boolean => held.mayHave(Buffer.from(text));

test("all texts that were added are found, also as a part of other bytes", () => {
  fc.assert(
    fc.property(fc.array(fc.string({ unit: "grapheme" }), { maxLength: 100 }), fc.string(), (texts, before) => {
      const held = new Fingerprints();
      for (const text of texts) held.add(text);
      expect(held.size).toBeLessThanOrEqual(new Set(texts).size);
      for (const text of texts) {
        const start = Buffer.byteLength(before);
        const end = start + Buffer.byteLength(text);
        expect(held.mayHave(Buffer.from(`${before}${text}after`), start, end)).toBe(true);
      }
    }),
  );
});

test("a set that grows keeps what it has, counts it once, and hardly ever finds another text", () => {
  const held = new Fingerprints();
  for (const text of ["drop", "drop"]) held.add(text);
  expect(held.size).toBe(1);
  for (let n = 0; n < 100_000; n++) held.add(`drop-${n}`);
  let [missing, found] = [0, 0];
  for (let n = 0; n < 100_000; n++) {
    if (!has(held, `drop-${n}`)) missing++;
    if (has(held, `other-${n}`)) found++;
  }
  // Two of a hundred thousand are expected.
  expect({ missing, isRare: found < 20 }).toEqual({ missing: 0, isRare: true });
  expect(held.size).toBeGreaterThan(99_980);
});
