import { attemptsKey } from "../../contracts/keys.js";
import type { Delivery } from "../../delivery/handler.js";
import type { Attempts } from "../../delivery/process.js";
import { DAY } from "../../kernel/time.js";
import type { Scripts } from "./scripts.js";

const KEEP_MS = DAY;

/** Counts attempts in Redis, where every worker sees them. */
export function createAttempts({ run, command }: Scripts): Attempts {
  const keyOf = ({ stream, seq, time }: Delivery): string => attemptsKey(stream, seq, time);
  return {
    begin: async (delivery, name) => Number(await run("begin-attempt", [keyOf(delivery)], [KEEP_MS, name])),
    refund: async (delivery, name) => {
      await command("srem", (client) => client.srem(keyOf(delivery), name));
    },
    forget: (delivery) => {
      // A count that stays is gone within a day.
      void command("unlink", (client) => client.unlink(keyOf(delivery))).catch(() => undefined);
    },
  };
}
