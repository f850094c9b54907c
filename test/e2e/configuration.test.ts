import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { JWT_SECRET, runMain } from "../support/service.js";

const COMPLETE = {
  REDIS_URL: "redis://127.0.0.1:1",
  NATS_URL: "nats://127.0.0.1:1",
  TIMELINE_USER_SERVICE_ADDR: "127.0.0.1:1",
  TIMELINE_POST_SERVICE_ADDR: "127.0.0.1:1",
  TIMELINE_GRPC_ADDR: "127.0.0.1:0",
  TIMELINE_HTTP_ADDR: "127.0.0.1:0",
  TIMELINE_JWT_SECRET: JWT_SECRET,
};

/** Starts with these variables and expects a refusal that names all of `faults`. */
async function expectRefusal(env: Readonly<Record<string, string>>, faults: readonly string[]): Promise<void> {
  const refused = runMain(["serve"], env);
  const timer = setTimeout(() => refused.signal("SIGKILL"), 45_000);
  const ending = await refused.exited;
  clearTimeout(timer);
  expect({ ...ending, text: refused.errors() }).toMatchObject({ code: 2, signal: null });
  for (const fault of faults) expect(refused.errors()).toContain(fault);
  expect(refused.errors()).not.toMatch(/^\s+at /m);
  expect(refused.errors()).not.toContain(JWT_SECRET);
}

test("a bad configuration is refused with all its faults at once, code 2 and no stack trace", async () => {
  const faults = {
    REDIS_URL: "not a url",
    NATS_URL: "http://",
    TIMELINE_ROLES: "bridge,juggler",
    TIMELINE_MAX_ENTRIES: "many",
    TIMELINE_FANOUT_AUDIENCE: "some",
    TIMELINE_LOG_LEVEL: "loud",
    TIMELINE_GRPC_ADDR: "nowhere",
    TIMELINE_MAX_ATTEMPTS: "0",
    TIMELINE_FANOUT_CHUNK_SIZE: "-5",
    TIMELINE_FANOUT_PULL_THRESHOLD: "1e",
    TIMELINE_TYPO: "1",
    TIMELINE_FAILPOINTS: "written=kill",
  };
  // Those of strangers are not our business.
  const strangers = { OTHER_TIMELINE: "x", OTEL_SERVICE_NAME: "mine" };
  await expectRefusal({ ...COMPLETE, ...faults, ...strangers }, Object.keys(faults));
});

test("a former name is read, and the log warns of it", async () => {
  const old = runMain(["serve"], { ...COMPLETE, TIMELINE_FANOUT_MAX_ATTEMPTS: "32" });
  try {
    const warned = (): boolean => old.output().includes("TIMELINE_FANOUT_MAX_ATTEMPTS is now TIMELINE_MAX_ATTEMPTS");
    await eventually(warned, "the log warns");
  } finally {
    await old.crash();
  }
});
