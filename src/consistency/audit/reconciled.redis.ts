import { RECONCILED_KEY } from "../../contracts/keys.js";
import { LOG_AGE_MS } from "../../contracts/times.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { ReconciledUpTo } from "./audit-loop.js";

export function createReconciledUpTo({ command }: Pick<Scripts, "command">): ReconciledUpTo {
  return {
    read: async () => {
      const upTo = await command("get", (client) => client.get(RECONCILED_KEY));
      return upTo === null ? undefined : Number(upTo);
    },
    write: async (upTo) => {
      await command("set", (client) => client.set(RECONCILED_KEY, upTo, "PX", LOG_AGE_MS));
    },
  };
}
