import { expect, test } from "@jest/globals";
import { type Happening, SessionState, type State } from "../../../src/gateway/session/state.js";

const WAY_TO: Readonly<Record<State, readonly Happening[]>> = {
  opening: [],
  relisted: ["relist"],
  catchingUp: ["open"],
  live: ["open", "caughtUp"],
  ended: ["end"],
};

function stateIn(state: State): SessionState {
  const machine = new SessionState();
  for (const happening of WAY_TO[state]) machine.on(happening);
  expect(machine.current).toBe(state);
  return machine;
}

// Invariant 7.
test.each<[State, Happening, State]>([
  ["opening", "relist", "relisted"],
  ["opening", "open", "catchingUp"],
  ["opening", "end", "ended"],
  ["relisted", "relist", "relisted"],
  ["relisted", "open", "catchingUp"],
  ["relisted", "end", "ended"],
  ["catchingUp", "relist", "catchingUp"],
  ["catchingUp", "caughtUp", "live"],
  ["catchingUp", "end", "ended"],
  ["live", "relist", "live"],
  ["live", "gap", "catchingUp"],
  ["live", "end", "ended"],
  ["ended", "relist", "ended"],
  ["ended", "open", "ended"],
  ["ended", "caughtUp", "ended"],
  ["ended", "end", "ended"],
])("an event stream that is %s becomes, after %s, %s", (from, on, to) => {
  const machine = stateIn(from);
  machine.on(on);
  expect(machine.current).toBe(to);
});

test.each<[State, Happening]>([
  ["opening", "gap"],
  ["opening", "caughtUp"],
  ["relisted", "gap"],
  ["relisted", "caughtUp"],
  ["catchingUp", "open"],
  ["catchingUp", "gap"],
  ["live", "open"],
  ["live", "caughtUp"],
  ["ended", "gap"],
])("in an event stream that is %s, %s is impossible", (state, happening) => {
  expect(() => stateIn(state).on(happening)).toThrow(`${happening} is impossible in ${state}`);
});
