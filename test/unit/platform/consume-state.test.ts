import { expect, test } from "@jest/globals";
import { silent } from "../../../src/kernel/logger.js";
import { ConsumeState, type Happening, type Source, type State } from "../../../src/platform/nats/consume/state.js";

const sourceOf = (createdAt: number): Source => {
  const gone = new AbortController();
  return { createdAt, gone, context: { stopping: gone.signal, log: silent }, latest: new Map(), delivered: 0 };
};

const WAY_TO: Readonly<Record<State, readonly Happening[]>> = {
  seeking: [],
  pulling: ["confirm"],
  doubting: ["confirm", "doubt"],
  draining: ["confirm", "close"],
  ended: ["close"],
};

function stateIn(state: State): ConsumeState {
  const machine = new ConsumeState();
  for (const happening of WAY_TO[state]) machine.on(happening);
  expect(machine.current).toBe(state);
  return machine;
}

// Invariant 1.
test.each<[State, Happening, State]>([
  ["seeking", "confirm", "pulling"],
  ["seeking", "doubt", "seeking"],
  ["seeking", "stop", "seeking"],
  ["seeking", "close", "ended"],
  ["pulling", "doubt", "doubting"],
  ["pulling", "stop", "seeking"],
  ["pulling", "close", "draining"],
  ["doubting", "confirm", "pulling"],
  ["doubting", "doubt", "doubting"],
  ["doubting", "stop", "seeking"],
  ["doubting", "close", "ended"],
  ["draining", "doubt", "ended"],
  ["draining", "stop", "draining"],
  ["draining", "close", "draining"],
  ["ended", "doubt", "ended"],
  ["ended", "stop", "ended"],
  ["ended", "close", "ended"],
])("a consumption that is %s becomes, after %s, %s; an answer to a question from before is void", (from, on, to) => {
  const machine = stateIn(from);
  const { steps } = machine;
  machine.on(on);
  expect(machine.current).toBe(to);
  expect(machine.steps).toBeGreaterThan(steps);
});

test.each<State>(["pulling", "draining", "ended"])("a consumption that is %s cannot be confirmed", (state) => {
  expect(() => stateIn(state).on("confirm")).toThrow(`confirm is impossible in ${state}`);
});

// Invariant 1.
test("acks wait while the consumer is in doubt, are sent if it is the same, and dropped if it is another", async () => {
  const machine = new ConsumeState();
  const [first, second] = [sourceOf(1), sourceOf(2)];
  machine.confirm(first);
  expect(await machine.mayAck(first)).toBe(true);
  const answers: string[] = [];
  const ask = async (name: string): Promise<void> => void answers.push(`${name} ${await machine.mayAck(first)}`);
  machine.on("doubt");
  const same = ask("same");
  machine.on("doubt");
  await new Promise(setImmediate);
  expect(answers).toEqual([]);
  machine.confirm(first);
  await same;
  machine.on("stop");
  const other = ask("other");
  machine.confirm(second);
  await other;
  expect(answers).toEqual(["same true", "other false"]);
  expect([first.gone.signal.aborted, await machine.mayAck(second)]).toEqual([true, true]);
});

// Invariant 1.
test("acks of a consumer that is gone are dropped at once, as are those in doubt when the process closes", async () => {
  const gone = stateIn("seeking");
  const source = sourceOf(1);
  gone.confirm(source);
  gone.on("doubt");
  const dropped = gone.mayAck(source);
  gone.abandon();
  expect([await dropped, gone.source, source.gone.signal.aborted]).toEqual([false, undefined, true]);
  const closing = stateIn("seeking");
  closing.confirm(source);
  closing.on("doubt");
  const waiting = closing.mayAck(source);
  closing.on("close");
  expect(await waiting).toBe(false);
});

// Invariant 2.
test("work in hand is acked while the process closes, until a doubt arises", async () => {
  const machine = new ConsumeState();
  const source = sourceOf(1);
  machine.confirm(source);
  machine.on("close");
  expect(await machine.mayAck(source)).toBe(true);
  machine.on("doubt");
  expect(await machine.mayAck(source)).toBe(false);
});
