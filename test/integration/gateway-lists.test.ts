import { randomUUID } from "node:crypto";
import { expect, jest, test } from "@jest/globals";
import { listReader } from "../../src/contracts/lists.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { Hidden } from "../../src/state/hidden/hidden.js";
import { eventually } from "../support/eventually.js";
import { ask, client, idle, listen, names, type Running, send, start, token } from "../support/gateway.js";

/** The users service, as a gateway asks it about one list of ada. */
class Owner {
  readonly list = randomUUID();
  readonly members = new Set(["bob", "cat"]);
  readonly followed = new Set<string>();
  readonly hidden = new Map<string, "all">();
  isAway = false;
  isGone = false;
  reads = 0;

  async listReader(user: string, list: string) {
    this.reads++;
    if (this.isAway) throw new AppError("unavailable", "the users service is away");
    if (this.isGone || user !== "ada" || list !== this.list) throw new AppError("notfound", "no list");
    return { member_ids: [...this.members], followed_ids: [...this.followed], owner_id: "ada" };
  }

  readonly open = (config = {}, log = silent): Promise<Running> =>
    start({
      config,
      log,
      readHidden: async (user) => new Hidden(user, this.hidden),
      lists: { listReader: (user, list) => this.listReader(user, list), judgesReplies: true },
    });

  urlOf = ({ url }: Running, list: string = this.list) => url.replace("home", `list/${list}`);

  watch = (running: Running, lastEventId?: string) =>
    listen({ ...running, url: this.urlOf(running) }, "ada", lastEventId);

  tell = (drop: string, by: string, event = "new_drop", more = {}) =>
    send(listReader(this.list), drop, event, { by, ...more });
}

const eventsOf = (raw: { events: readonly { event: string; data: Readonly<Record<string, unknown>> }[] }): string[] =>
  raw.events.map(({ event, data }) => `${event} ${String(data.drop_id)}`);

// Invariant 7.
test("a stream of a list waits while the users service is away, and then tells in order what its owner sees", async () => {
  const owner = new Owner();
  const running = await owner.open();
  const raw = await owner.watch(running);
  owner.isAway = true;
  const bylines = ["bob", "dan", "bob,,eve", "bob,,cat", "bob,,,,f", "cat"];
  for (const [number, by] of bylines.entries()) await owner.tell(`d${number}`, by);
  await owner.tell("d4", "bob,,,,f", "drop_deleted");
  await owner.tell("d0", "bob", "drop_deleted");
  await send(listReader(owner.list), "d5", "drop_deleted");
  await send(listReader(owner.list), "d9", "drop_deleted");
  await eventually(() => owner.reads > 3, "the users service is asked again");
  expect(raw.events).toEqual([]);
  owner.isAway = false;
  const shown = ["new_drop d0", "new_drop d3", "new_drop d5", "drop_deleted d0", "drop_deleted d5"];
  await eventually(() => raw.events.length >= shown.length, "the events");
  expect(eventsOf(raw)).toEqual(shown);
  owner.followed.add("bob");
  await owner.tell("d6", "bob,,,,f");
  await eventually(() => raw.drops().includes("d6"), "a drop of somebody who was followed just now");
  // A resume is judged by the members and follows of then.
  const before = raw.events[0]?.id;
  owner.members.delete("cat");
  await raw.goes();
  const second = await owner.watch(running, before);
  await eventually(() => second.events.length >= 4, "what was missed");
  expect(eventsOf(second)).toEqual(["new_drop d4", "drop_deleted d4", "drop_deleted d0", "new_drop d6"]);
});

// Invariant 11.
test("a burst of drops that a list does not show costs the users service a call a second", async () => {
  const owner = new Owner();
  const running = await owner.open();
  const raws = [await owner.watch(running), await owner.watch(running)];
  const [before, began] = [owner.reads, Date.now()];
  for (const drop of names("left-out", 300)) await owner.tell(drop, "dan");
  await owner.tell("last", "bob");
  await Promise.all(raws.map((raw) => raw.sees(["last"])));
  expect(owner.reads - before).toBeLessThanOrEqual(2 + (Date.now() - began) / 1_000);
});

test("a stream of a list of an erased owner is gone, not unknown", async () => {
  const owner = new Owner();
  const running = await owner.open();
  await running.erased.record("eve", 1);
  const { response } = await ask(owner.urlOf(running), { authorization: `Bearer ${await token("eve")}` });
  expect(response.statusCode).toBe(410);
  expect(owner.reads).toBe(0);
  await idle(running);
});

test("a renewal ends the stream of a list that was deleted, and warns of no lost registration", async () => {
  const owner = new Owner();
  const warn = jest.fn();
  const running = await owner.open({}, { ...silent, warn });
  const raw = await owner.watch(running);
  owner.isGone = true;
  await client.del(...(await client.keys("sse*")));
  await eventually(() => raw.ended, "the end of the stream");
  await idle(running);
  expect(warn).not.toHaveBeenCalled();
  // Where the list is there, the registration was lost.
  owner.isGone = false;
  const second = await owner.watch(running);
  await client.del(...(await client.keys("sse*")));
  await eventually(() => warn.mock.calls.length > 0, "the warning");
  expect(warn).toHaveBeenCalledWith({ count: 1 }, expect.stringContaining("registrations were lost"));
  await eventually(() => second.resets().length === 1, "the reset");
});

test("a list that is deleted while the users service is away ends its stream once the service answers", async () => {
  const owner = new Owner();
  const running = await owner.open();
  const raw = await owner.watch(running);
  owner.isAway = true;
  const before = owner.reads;
  await client.del(...(await client.keys("sse*")));
  await eventually(() => owner.reads > before + 1, "the users service is asked again");
  expect(raw.ended).toBe(false);
  owner.isGone = true;
  owner.isAway = false;
  await eventually(() => raw.ended, "the end of the stream");
  await idle(running);
});

// Invariant 11.
test("streams of a list that are opened one after the other ask about it once each, and once a second besides", async () => {
  const owner = new Owner();
  const running = await owner.open({ maxConnectionsPerUser: 20 });
  const began = Date.now();
  for (let opened = 0; opened < 10; opened++) await owner.watch(running);
  expect(owner.reads).toBeLessThanOrEqual(11 + (Date.now() - began) / 1_000);
});

test("the refusal of a stream of an unknown list says the reason, and that of an unknown caller does not", async () => {
  const owner = new Owner();
  const running = await owner.open();
  const problemOf = async (list: string, headers: Record<string, string>) => {
    const raw = await ask(owner.urlOf(running, list), headers);
    await eventually(() => raw.ended, "the end of the answer");
    return JSON.parse(raw.text) as unknown;
  };
  const authorization = `Bearer ${await token("bob")}`;
  const unknown = { type: "about:blank", title: "Not Found", status: 404 };
  expect(await problemOf("l", { authorization })).toEqual({ ...unknown, detail: "the user has no such list" });
  expect(await problemOf(owner.list, { authorization })).toMatchObject({ status: 404, detail: expect.any(String) });
  expect(await problemOf(owner.list, {})).toEqual({ type: "about:blank", title: "Unauthorized", status: 401 });
});

test("streams of lists and of the home count together, and a list that is unknown or gone has none", async () => {
  const owner = new Owner();
  const running = await owner.open({ maxConnectionsPerUser: 2 });
  const raws = [await owner.watch(running), await listen(running, "ada")];
  const get = async (url: string, user: string) =>
    (await ask(url, { authorization: `Bearer ${await token(user)}` })).response.statusCode;
  expect(await get(owner.urlOf(running), "ada")).toBe(429);
  expect(await get(owner.urlOf(running), "bob")).toBe(404);
  expect(await get(owner.urlOf(running, randomUUID()), "cat")).toBe(404);
  expect(await get(owner.urlOf(running, "l"), "cat")).toBe(404);
  owner.isGone = true;
  await owner.tell("d1", "dan");
  await eventually(() => raws[0]?.ended === true, "the end of the stream");
  raws[1]?.close();
  await idle(running);
});
