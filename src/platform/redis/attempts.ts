import { attemptsKey } from "../../contracts/keys.js";
import type { Delivery } from "../../delivery/handler.js";
import type { Attempts } from "../../delivery/process.js";
import { DAY } from "../../kernel/time.js";
import type { Scripts } from "./scripts.js";

const KEEP_MS = DAY;

export function createAttempts({ run, command }: Scripts): Attempts {
  const keyOf = ({ stream, seq, time }: Delivery): string => attemptsKey(stream, seq, time);
  const note = async (delivery: Delivery, name: string, state: "begun" | "failed"): Promise<number[]> =>
    (await run("note-attempt", [keyOf(delivery)], [KEEP_MS, name, state])) as number[];
  return {
    begin: async (delivery, name) => {
      const [count = 0, lost = 0] = await note(delivery, name, "begun");
      return { count, lost };
    },
    fail: async (delivery, name) => {
      await note(delivery, name, "failed");
    },
    refund: async (delivery, name) => {
      await command("hdel", (client) => client.hdel(keyOf(delivery), name));
    },
    forget: (delivery) => {
      // The count expires within a day.
      void command("unlink", (client) => client.unlink(keyOf(delivery))).catch(() => undefined);
    },
  };
}
