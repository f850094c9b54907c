import { DAY, HOUR } from "../kernel/time.js";
import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

/** Audits by the role fanout. */
export const AUDIT_VARIABLES = {
  intervalMs: {
    name: "TIMELINE_AUDIT_INTERVAL_MS",
    schema: integer(0, 7 * DAY),
    default: "600000",
    about: "How often one process reconciles and audits some timelines, ms; 0: never",
  },
  settleMs: {
    name: "TIMELINE_AUDIT_SETTLE_MS",
    schema: integer(0, HOUR),
    default: "30000",
    about: "Audits and the watch for a restored database ignore younger changes, ms",
  },
} as const satisfies Variables;

export type AuditConfig = ConfigOf<typeof AUDIT_VARIABLES>;
