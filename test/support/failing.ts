import { AppError } from "../../src/kernel/errors.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import type { Random } from "./random.js";

const EACH_WAY = 0.05;

/** The same functions, whose calls now and then fail as in an outage: before their effect, or after it. */
export function failing<T extends object>(target: T, names: readonly (keyof T & string)[], random: Random): T {
  const wrapped = names.map((name) => {
    const work = target[name] as (...args: unknown[]) => Promise<unknown>;
    const fail = (when: string): void => {
      if (random() < EACH_WAY) throw new AppError("unavailable", `${when} ${name}`);
    };
    const call = async (...args: unknown[]): Promise<unknown> => {
      fail("before");
      const result = await work(...args);
      fail("after");
      return result;
    };
    return [name, call] as const;
  });
  return { ...target, ...Object.fromEntries(wrapped) };
}

/** The same scripts, whose writes that name this user end with an error until `mend` is called. */
export function failingFor(scripts: Scripts, user: string): Scripts & { mend(): void } {
  let isBroken = true;
  return {
    ...scripts,
    async run(name, keys, args) {
      const reply = await scripts.run(name, keys, args);
      if (isBroken && args.some((arg) => String(arg).split(",").includes(user)))
        throw new AppError("failed", "refused");
      return reply;
    },
    mend() {
      isBroken = false;
    },
  };
}
