/** Preloaded into a process (`node --import`): its wall clock is CLOCK_SHIFT_MS ahead of that of the machine. */
const shift = Number(process.env.CLOCK_SHIFT_MS);
const Machine = globalThis.Date;
const now = () => Machine.now() + shift;

globalThis.Date = new Proxy(Machine, {
  construct: (target, args, made) => Reflect.construct(target, args.length === 0 ? [now()] : args, made),
  apply: () => new Machine(now()).toString(),
  get: (target, name) => (name === "now" ? now : Reflect.get(target, name)),
});
