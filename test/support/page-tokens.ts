import { fingerprint } from "../../src/kernel/ids.js";

/** A token as somebody makes one up who knows how tokens look, and not what they are sealed with. */
export function madeUpToken(list: string, key: readonly unknown[]): string {
  const text = JSON.stringify(key);
  return Buffer.from(`${fingerprint(`${list}\n${text}`).slice(0, 8)}${text}`).toString("base64url");
}

/** The same page token, written in other ways. */
export const rewritten = (token: string): string[] => [
  `${token}=`,
  ` ${token}`,
  `${token}\n`,
  `${token.slice(0, 4)}.${token.slice(4)}`,
  token.slice(0, -1),
  `${token}AAAA`,
];
