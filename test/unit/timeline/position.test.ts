import { expect, test } from "@jest/globals";
import { FLOOR_MEMBER } from "../../../src/kernel/ids.js";
import { fromToken, toToken } from "../../../src/timeline/position.js";

test("a token stands for the position it was made of, and nothing else is one", () => {
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
