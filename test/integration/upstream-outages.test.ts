import { status } from "@grpc/grpc-js";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import { codeOf, subjectOf } from "../../src/kernel/errors.js";
import { Busy } from "../../src/upstreams/faults.js";
import { connectUpstreams, openUpstreamChannels, type Upstreams } from "../../src/upstreams/upstreams.grpc.js";
import { becomes, eventually } from "../support/eventually.js";
import { type Upstreams as Served, startUpstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

let served: Served;
let upstreams: ReturnType<typeof connectUpstreams>;

// Each test has a client of its own: what is known of an upstream's state is the client's.
beforeEach(async () => {
  const world = new World();
  for (const author of ["ada", "anna", "arno", "abel"]) world.follow("bob", author);
  served = await startUpstreams(world);
  upstreams = connectUpstreams({ userServiceAddr: served.usersAddress, postServiceAddr: served.postsAddress, tls: {} });
  // Connected: a call that takes long to fail counts for a while.
  await upstreams.following({ user: "bob", size: 10, token: "" });
});
afterEach(async () => {
  upstreams.close();
  await served.stop();
});

/** Asks until a call is sent: a failure counts for as long as it took, which may be long on a busy machine. */
async function sent<T>(ask: () => Promise<T>): Promise<T> {
  let call: Promise<T> | undefined;
  const isSent = () => {
    call = ask();
    return call.then(
      () => true,
      (error: unknown) => !(error instanceof Busy),
    );
  };
  await eventually(isSent, "a call is sent");
  return call as Promise<T>;
}
const outcome = (ask: () => Promise<unknown>): Promise<string> =>
  sent(ask).then(
    () => "answered",
    (error: unknown) => codeOf(error),
  );
const followersOf = (user: string, deadline?: number): Promise<string> =>
  outcome(() => upstreams.followers({ user, size: 10, token: "", deadline }));
const dropsOf = (user_id: string): Promise<string> =>
  outcome(() => upstreams.dropsByUser({ author: user_id, limit: 10, below: undefined }));

// Invariant 8.
test("an author whose calls fail alone has failed, again and again; the others are answered", async () => {
  served.inject({ method: "GetFollowersList", user: "anna", code: status.INTERNAL });
  for (let call = 0; call < 5; call++) expect(await followersOf("anna")).toBe("failed");
  for (const author of ["ada", "arno"]) expect(await followersOf(author)).toBe("answered");
  expect(await followersOf("anna")).toBe("failed");
});

/** The code, and the subject where it alone is at fault. */
const fault = (user: string): Promise<string> => faultOf(upstreams.followers({ user, size: 10, token: "" }));
const sentFault = (user: string): Promise<string> =>
  faultOf(sent(() => upstreams.followers({ user, size: 10, token: "" })));
const faultOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => "answered",
    (error: unknown) => `${codeOf(error)} ${subjectOf(error) ?? "all"}`,
  );

// Invariant 8.
test("failures of many authors are no outage while others, whose lists are known, are answered", async () => {
  for (let known = 0; known < 5; known++) expect(await fault(`known-${known}`)).toBe("answered");
  const failing = Array.from({ length: 36 }, (_, at) => `failing-${at}`);
  for (const user of failing) served.inject({ method: "GetFollowersList", user, code: status.INTERNAL });
  for (const user of [...failing, ...failing]) expect(await sentFault(user)).toBe(`failed ${user}`);
});

// Invariant 8.
test("one author who is unavailable is no outage, also to a process that has asked for nobody else", async () => {
  const heal = served.inject({ method: "GetFollowersList", user: "anna", code: status.UNAVAILABLE });
  for (let call = 0; call < 3; call++) expect(await fault("anna")).toBe("unavailable anna");
  expect(await fault("ada")).toBe("answered");
  expect(await fault("anna")).toBe("unavailable anna");
  heal();
  served.inject({ method: "GetFollowersList", code: status.UNAVAILABLE });
  await becomes(async () => expect(await fault("anna")).toBe("unavailable all"));
  expect(await fault("ada")).toBe("unavailable all");
});

// Invariant 8.
test("one call about an author who hangs waits, and calls about others go on", async () => {
  expect(await fault("ada")).toBe("answered");
  served.inject({ method: "GetFollowersList", user: "anna", delayMs: 60_000 });
  const first = fault("anna");
  expect(await Promise.all(Array.from({ length: 40 }, () => fault("anna")))).toEqual(
    Array(40).fill("unavailable anna"),
  );
  expect(await fault("arno")).toBe("answered");
  expect(served.mostHeld()).toBe(1);
  expect(await first).toBe("failed anna");
});

// Invariant 8.
test("a time-out of one author alone is a failure of that author", async () => {
  expect(await followersOf("ada")).toBe("answered");
  served.inject({ method: "GetFollowersList", user: "anna", delayMs: 60_000 });
  for (let call = 0; call < 2; call++) expect(await followersOf("anna", Date.now() + 150)).toBe("failed");
  expect(served.abandoned() + served.held()).toBeGreaterThan(0);
});

// Invariant 8.
test.each([status.INTERNAL, status.UNKNOWN, status.RESOURCE_EXHAUSTED, status.INVALID_ARGUMENT])(
  "where most fail it is an outage, also when they say %i; once most are answered it is over",
  async (code) => {
    const heal = served.inject({ method: "GetFollowersList", code });
    expect(await followersOf("ada")).toBe("failed");
    for (const author of ["anna", "arno", "ada"]) expect(await followersOf(author)).toBe("unavailable");
    heal();
    for (const author of ["anna", "arno"]) expect(await followersOf(author)).toBe("answered");
    served.inject({ method: "GetFollowersList", user: "ada", code });
    expect(await followersOf("ada")).toBe("failed");
  },
);

// Invariant 8.
test("ids that are refused alone have failed, however many there are, while another one is answered", async () => {
  expect(await followersOf("ada")).toBe("answered");
  const refused = ["anna", "arno", "abel"];
  for (const user of refused) served.inject({ method: "GetFollowersList", user, code: status.INVALID_ARGUMENT });
  for (const user of [...refused, ...refused]) expect(await followersOf(user)).toBe("failed");
});

// Invariant 8.
test("an upstream that answers everybody late is available, and fails for one author alone", async () => {
  served.inject({ method: "GetFollowersList", delayMs: 1_500 });
  const others = ["ada", "arno", "abel"];
  expect(await Promise.all(others.map((author) => fault(author)))).toEqual(Array(3).fill("answered"));
  served.inject({ method: "GetFollowersList", user: "anna", code: status.INTERNAL });
  expect(await fault("anna")).toBe("failed anna");
});

// Invariant 8.
test("an upstream that answers nobody any more is unavailable for all", async () => {
  for (const author of ["ada", "arno", "abel"]) expect(await fault(author)).toBe("answered");
  served.inject({ method: "GetFollowersList", delayMs: 60_000 });
  expect(await fault("anna")).toBe("unavailable all");
}, 20_000);

// Invariant 8.
test("one upstream's outage is not the other's", async () => {
  served.inject({ method: "GetFollowersList", code: status.INTERNAL });
  for (const author of ["ada", "anna", "arno"]) await followersOf(author);
  expect(await followersOf("abel")).toBe("unavailable");
  served.inject({ method: "GetDropsByUserID", user: "ada", code: status.INTERNAL });
  expect([await dropsOf("ada"), await dropsOf("anna")]).toEqual(["failed", "answered"]);
});

// Invariant 8.
test("many bad reads by id are no outage to a caller of another kind over the same channels", async () => {
  const channels = openUpstreamChannels({
    ...{ userServiceAddr: served.usersAddress, postServiceAddr: served.postsAddress, tls: {} },
  });
  const [reads, fanout] = [channels.upstreams(), channels.upstreams()];
  const drops = (of: Upstreams, user_id: string, deadline?: number): Promise<string> =>
    outcome(() => of.dropsByUser({ author: user_id, limit: 10, below: undefined }, deadline));
  for (const author of ["ada", "arno"]) expect(await drops(fanout, author)).toBe("answered");
  for (let bad = 0; bad < 11; bad++) {
    served.inject({ method: "GetDropsByUserID", user: `bad${bad}`, code: status.INTERNAL });
    await drops(reads, `bad${bad}`, Date.now() + 10_000);
  }
  served.inject({ method: "GetDropsByUserID", user: "anna", code: status.INTERNAL });
  for (let attempt = 0; attempt < 5; attempt++) expect(await drops(fanout, "anna")).toBe("failed");
  // Errors that the reads take for an outage themselves.
  expect(await drops(reads, "anna")).toBe("unavailable");
  channels.close();
});

test("the deadline of hurried callers is no outage of the upstream", async () => {
  expect(await followersOf("ada")).toBe("answered");
  for (const user of ["bob", "eve", "zoe"]) expect(await followersOf(user, Date.now() - 1)).toBe("failed");
  served.inject({ method: "GetFollowersList", user: "anna", code: status.INTERNAL });
  expect(await followersOf("anna")).toBe("failed");
});
