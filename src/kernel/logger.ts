import { MINUTE } from "./time.js";

export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  isLevelEnabled(level: "debug" | "info"): boolean;
  /** Returns true if a line about a served request is to be logged. A configured share of them is, chosen at random. */
  logsAccess(): boolean;
}

export const silent: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  isLevelEnabled: () => false,
  logsAccess: () => false,
};

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
