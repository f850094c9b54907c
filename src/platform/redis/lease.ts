import { randomUUID } from "node:crypto";
import { LEASE_MS, type Lease } from "../../kernel/lease.js";
import { type Scripts, script } from "./scripts.js";

const HOLD_LEASE = script("hold-lease", import.meta.url);
const RELEASE_LEASE = script("release-lease", import.meta.url);

/** Each call makes another holder. */
export function createLease(scripts: Scripts, key: string): Lease {
  const holder = randomUUID();
  return {
    hold: async () => (await scripts.run(HOLD_LEASE, [key], [holder, LEASE_MS])) === 1,
    release: async () => void (await scripts.run(RELEASE_LEASE, [key], [holder]).catch(() => undefined)),
  };
}
