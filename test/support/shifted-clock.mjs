/**
 * Preloaded into a process (`node --import`): its wall clock is CLOCK_SHIFT_MS ahead of that of the machine. Where that
 * holds several numbers, each SIGUSR2 makes the clock step to the next of them.
 */
const shifts = process.env.CLOCK_SHIFT_MS.split(",").map(Number);
let shift = shifts.shift();
const Machine = globalThis.Date;
const now = () => Machine.now() + shift;

process.on("SIGUSR2", () => {
  shift = shifts.shift() ?? shift;
});

globalThis.Date = new Proxy(Machine, {
  construct: (target, args, made) => Reflect.construct(target, args.length === 0 ? [now()] : args, made),
  apply: () => new Machine(now()).toString(),
  get: (target, name) => (name === "now" ? now : Reflect.get(target, name)),
});
