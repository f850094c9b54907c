import { startLoop } from "./loop.js";
import { SECOND } from "./time.js";

export interface Lease {
  /** Takes or renews it for {@link LEASE_MS}; false while another process holds it. Rejects if that is unknown. */
  hold(): Promise<boolean>;
  /** Never rejects: a lease that is not given back runs out. */
  release(): Promise<void>;
}

export const LEASE_MS = 10 * SECOND;
const RENEW_MS = 3 * SECOND;

export async function renewing<T>(lease: Lease, work: () => Promise<T>): Promise<T> {
  const loop = startLoop({ work: () => lease.hold(), everyMs: RENEW_MS, firstAfterMs: RENEW_MS });
  try {
    return await work();
  } finally {
    await loop.close();
  }
}

/** Returns false if another process holds the lease. `work` may outlive the lease: it must be safe to run twice. */
export async function underLease(lease: Lease, work: () => Promise<void>): Promise<boolean> {
  if (!(await lease.hold())) return false;
  try {
    await renewing(lease, work);
    return true;
  } finally {
    await lease.release();
  }
}
