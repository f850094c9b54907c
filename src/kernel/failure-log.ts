import type { Logger } from "./logger.js";
import { MINUTE } from "./time.js";

/** Logs one failure of each kind a minute, and how many were left out before it: an outage fails every call. */
export function createFailureLog(log: Logger, message: string): (kind: string, fields: object) => void {
  const kinds = new Map<string, { readonly at: number; unlogged: number }>();
  return (kind, fields) => {
    const now = performance.now();
    const last = kinds.get(kind);
    if (last && now - last.at < MINUTE) last.unlogged++;
    else {
      kinds.set(kind, { at: now, unlogged: 0 });
      log.warn({ ...fields, ...(last?.unlogged ? { unlogged: last.unlogged } : {}) }, message);
    }
  };
}
