import { expect, test } from "@jest/globals";
import { EventQueue, MAX_WAITING } from "../../../clients/typescript/src/queue.js";

const numbered = (number: number) => ({ id: `id-${number}`, event: number });

test("events that nobody takes stop the stream at a bound, and go on once half of them are taken", async () => {
  const queue = new EventQueue<number>(() => undefined);
  const waits = Array.from({ length: MAX_WAITING }, (_, number) => queue.add(numbered(number)));
  expect(waits.map((wait) => wait !== undefined)).toEqual(waits.map((_, number) => number === MAX_WAITING - 1));
  let mayGoOn = false;
  void waits.at(-1)?.then(() => {
    mayGoOn = true;
  });
  expect(await queue.take()).toEqual({ done: false, value: 0 });
  expect(mayGoOn).toBe(false);
  for (let number = 1; number <= MAX_WAITING / 2; number++) await queue.take();
  expect(mayGoOn).toBe(true);
});

test("a position is passed once the loop asks for the event after it, and heartbeats never overtake events", async () => {
  const passed: string[] = [];
  const queue = new EventQueue<number>((id) => passed.push(id));
  void queue.add(numbered(1));
  for (const id of ["beat-1", "beat-2"]) void queue.add({ id, event: undefined });
  void queue.add(numbered(2));
  await queue.take();
  expect(passed).toEqual([]);
  await queue.take();
  expect(passed).toEqual(["id-1", "beat-2"]);
  const third = queue.take();
  expect(passed).toEqual(["id-1", "beat-2", "id-2"]);
  void queue.add({ id: "beat-3", event: undefined });
  expect(passed.at(-1)).toBe("beat-3");
  void queue.add(numbered(3));
  expect(await third).toEqual({ done: false, value: 3 });
  expect(passed.at(-1)).toBe("beat-3");
});

test("an end drops what waits, throws its error once, and lets the stream go on", async () => {
  const queue = new EventQueue<number>(() => undefined);
  const waits = Array.from({ length: MAX_WAITING }, (_, number) => queue.add(numbered(number)));
  queue.end(new Error("refused"));
  await waits.at(-1);
  await expect(queue.take()).rejects.toThrow("refused");
  expect(await queue.take()).toEqual({ done: true, value: undefined });
  const open = new EventQueue<number>(() => undefined);
  const both = [open.take(), open.take()];
  open.end(undefined);
  expect(await Promise.all(both)).toEqual(both.map(() => ({ done: true, value: undefined })));
});
