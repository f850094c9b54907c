import { DAY, HOUR } from "../kernel/time.js";
import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

/** Audits by the role fanout. */
export const AUDIT_VARIABLES = {
  intervalMs: {
    name: "TIMELINE_AUDIT_INTERVAL_MS",
    schema: integer(0, 7 * DAY),
    default: "600000",
    about: "How often one process of the role fanout compares some timelines with the upstreams, ms; 0: never",
  },
  users: {
    name: "TIMELINE_AUDIT_USERS",
    schema: integer(0, 10_000),
    default: "20",
    about: "Home timelines that each of these audits compares",
  },
  settleMs: {
    name: "TIMELINE_AUDIT_SETTLE_MS",
    schema: integer(0, HOUR),
    default: "30000",
    about: "Audits ignore changes younger than this, which may still be under way, ms",
  },
  publicationsPercent: {
    name: "TIMELINE_AUDIT_PUBLICATIONS_PERCENT",
    schema: integer(0, 100),
    default: "100",
    about: "Share of completed publications and deletions that are checked in some timelines, percent; 0: none",
  },
  publicationsDelayMs: {
    name: "TIMELINE_AUDIT_PUBLICATIONS_DELAY_MS",
    schema: integer(0, 600_000),
    default: "3000",
    about: "Time from the last write of a publication to its check, and from there to a second check, ms",
  },
  publicationsRate: {
    name: "TIMELINE_AUDIT_PUBLICATIONS_RATE",
    schema: integer(1, 10_000),
    default: "20",
    about: "Maximum number of publications that a process of the role fanout checks a second; others are skipped",
  },
} as const satisfies Variables;

export type AuditConfig = ConfigOf<typeof AUDIT_VARIABLES>;
