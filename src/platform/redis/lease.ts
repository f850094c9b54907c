import { randomUUID } from "node:crypto";
import { LEASE_MS, type Lease } from "../../kernel/lease.js";
import type { Scripts } from "./scripts.js";

/** Each call makes another holder. */
export function createLease(scripts: Scripts, key: string): Lease {
  const holder = randomUUID();
  return {
    hold: async () => (await scripts.run("hold-lease", [key], [holder, LEASE_MS])) === 1,
    release: async () => void (await scripts.run("release-lease", [key], [holder]).catch(() => undefined)),
  };
}
