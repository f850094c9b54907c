/**
 * Marks a message of `DROPS` or `FANOUT` that is applied without telling those
 * who listen: it is history, and news to nobody.
 */
export const SILENT_HEADER = "Timeline-Silent";
