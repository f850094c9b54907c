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
  };
  await expectRefusal({ ...COMPLETE, ...faults }, Object.keys(faults));
});

test("an unknown variable of ours is refused, a stranger's is not our business", async () => {
  const env = { ...COMPLETE, TIMELINE_MAX_ENTIRES: "50", OTHER_TIMELINE: "x", OTEL_SERVICE_NAME: "mine" };
  await expectRefusal(env, ["TIMELINE_MAX_ENTIRES"]);
});

test("a former name is read, and the log warns of it; both names, or a removed one, are refused", async () => {
  const old = runMain(["serve"], { ...COMPLETE, TIMELINE_FANOUT_MAX_ATTEMPTS: "32" });
  try {
    const warned = (): boolean => old.output().includes("TIMELINE_FANOUT_MAX_ATTEMPTS is now TIMELINE_MAX_ATTEMPTS");
    await eventually(warned, "the log warns");
  } finally {
    await old.crash();
  }
  const both = { ...COMPLETE, TIMELINE_FANOUT_MAX_ATTEMPTS: "32", TIMELINE_MAX_ATTEMPTS: "32" };
  await expectRefusal(both, ["TIMELINE_FANOUT_MAX_ATTEMPTS", "TIMELINE_MAX_ATTEMPTS"]);
  await expectRefusal({ ...COMPLETE, TIMELINE_FAILPOINTS: "written=kill" }, ["is no longer a setting; remove it"]);
});

for (const bad of ["0", "-1", "1.5", "NaN", "Infinity", " ", "1000x", "0x10"]) {
  test(`TIMELINE_MAX_ENTRIES=${JSON.stringify(bad)} is refused`, async () => {
    await expectRefusal({ ...COMPLETE, TIMELINE_MAX_ENTRIES: bad }, ["TIMELINE_MAX_ENTRIES"]);
  });
}

test("a gateway without means to check tokens is refused", async () => {
  const { TIMELINE_JWT_SECRET: _secret, ...rest } = COMPLETE;
  await expectRefusal(rest, ["TIMELINE_JWT_SECRET"]);
  await expectRefusal({ ...rest, TIMELINE_ROLES: "gateway" }, ["TIMELINE_JWT_SECRET"]);
  await expectRefusal({ ...COMPLETE, TIMELINE_JWT_SECRET: "" }, ["TIMELINE_JWT_SECRET"]);
});

test("roles that need upstreams are refused without their addresses", async () => {
  const { TIMELINE_USER_SERVICE_ADDR: _users, TIMELINE_POST_SERVICE_ADDR: _posts, ...rest } = COMPLETE;
  await expectRefusal(rest, ["TIMELINE_USER_SERVICE_ADDR", "TIMELINE_POST_SERVICE_ADDR"]);
});
