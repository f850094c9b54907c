import { afterEach, expect, jest, test } from "@jest/globals";
import { createSend } from "../../../clients/typescript/src/send.js";

afterEach(() => {
  jest.restoreAllMocks();
});

const message = { signal: new AbortController().signal };

test("a renewal that never ends holds up the requests of half a minute, and no later ones", async () => {
  let now = 0;
  jest.spyOn(performance, "now").mockImplementation(() => now);
  const renewals: Array<(token: string) => void> = [];
  const token = (refused?: string) =>
    refused === undefined ? "old" : new Promise<string>((resolve) => renewals.push(resolve));
  const fetch = async (_url: unknown, init?: RequestInit): Promise<Response> => {
    const isOld = new Headers(init?.headers).get("authorization") === "Bearer old";
    return new Response(null, { status: isOld ? 401 : 204 });
  };
  const send = createSend({ url: "http://gateway", token, fetch });
  const turn = () => new Promise(setImmediate);

  const held = [send("/a", message), send("/b", message)];
  await turn();
  expect(renewals).toHaveLength(1);
  now = 31_000;
  const later = send("/c", message);
  await turn();
  expect(renewals).toHaveLength(2);
  renewals[1]?.("new");
  expect((await later).status).toBe(204);
  renewals[0]?.("new");
  expect((await Promise.all(held)).map(({ status }) => status)).toEqual([204, 204]);
});
