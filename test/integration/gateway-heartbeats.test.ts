import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { connection, connectionWith, forge, listen, names, send, sendMany, start } from "../support/gateway.js";

/**
 * The checks of streams fail until `answer` is set; then it runs between the leader's answer and the stream. Live messages
 * with the text `lost` are dropped.
 */
async function startChecked() {
  const checks: { answer: (() => Promise<void>) | undefined; lost: string } = { answer: undefined, lost: "" };
  const own = connectionWith({
    request: async (...of) => {
      if (!of[0].startsWith("$JS.API.STREAM.MSG.GET")) return connection.request(...of);
      if (!checks.answer) throw new Error("not yet");
      const answer = await connection.request(...of);
      await checks.answer();
      return answer;
    },
    subscribe: (subject, { callback, ...options } = {}) =>
      connection.subscribe(subject, {
        ...options,
        callback: (error, message) => {
          if (checks.lost === "" || !message.string().includes(checks.lost)) callback?.(error, message);
        },
      }),
  });
  const running = await start({ nats: own });
  return { checks, raw: await listen(running, "alice") };
}

// Invariant 7.
test("an event that comes while a heartbeat asks for the user's last one causes no reset, and nothing is missed", async () => {
  const { checks, raw } = await startChecked();
  // NOTIFY keeps 128 of a user: a stream that went back to its start would find a gap.
  const all = names("d", 130);
  await sendMany("alice", all);
  await raw.sees(all);
  const checked = new Promise<void>((resolve) => {
    checks.answer = async () => {
      checks.answer = async () => {};
      await send("alice", "meanwhile");
      await raw.sees([...all, "meanwhile"]);
      resolve();
    };
  });
  await checked;
  const later = names("later", 10);
  for (const drop of later) await send("alice", drop);
  await eventually(() => raw.drops().at(-1) === later.at(-1), "the last one");
  expect([raw.resets(), raw.drops()]).toEqual([[], [...all, "meanwhile", ...later]]);
});

// Invariant 7.
test("a lost event that a forged one has hidden is found by the next heartbeat", async () => {
  const { checks, raw } = await startChecked();
  const last = await send("alice", "d1");
  await raw.sees(["d1"]);
  checks.lost = "lost";
  await send("alice", "lost");
  for (const drop of ["o1", "o2"]) await send("bob", drop);
  forge("alice", "forged", last + 2);
  await raw.sees(["d1", "forged"]);
  checks.answer = async () => {};
  await raw.sees(["d1", "forged", "lost"]);
  expect(raw.resets()).toEqual([]);
});
