import { SECOND } from "./time.js";

/** The right to a piece of work, held by one process at a time. */
export interface Lease {
  /** Takes or renews it for {@link LEASE_MS}; false while another process holds it. Rejects where that cannot be known. */
  hold(): Promise<boolean>;
  /** Gives it back. Never rejects: a lease that is not given back runs out. */
  release(): Promise<void>;
}

/** Where a holder dies, others can take the lease after this. */
export const LEASE_MS = 10 * SECOND;
const RENEW_MS = 3 * SECOND;

/** Renews a lease that is held already while `work` runs, and keeps it afterwards. */
export async function renewing<T>(lease: Lease, work: () => Promise<T>): Promise<T> {
  const timer = setInterval(() => void lease.hold().catch(() => undefined), RENEW_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

/**
 * Runs `work` under a lease, and gives it back. Returns false, without running it, where another process holds the
 * lease. `work` is not interrupted if the lease is lost in between: it must be safe to run twice.
 */
export async function underLease(lease: Lease, work: () => Promise<void>): Promise<boolean> {
  if (!(await lease.hold())) return false;
  try {
    await renewing(lease, work);
    return true;
  } finally {
    await lease.release();
  }
}
