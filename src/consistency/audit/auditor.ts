import type { TimelineEntry } from "../../contracts/timelines.js";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { type AuditDeps, type AuditOptions, audit, type Report, type TimelineKind } from "./audit.js";
import type { Contents } from "./compare.js";

/** One timeline: a home by its user, local or global by itself. */
export interface TimelineName {
  readonly kind: TimelineKind;
  readonly name: string;
}

export type SharedName = Exclude<TimelineKind, "home">;

/** Timelines as they should be, and how they become that; see timeline/index.ts. */
export interface Rebuilding {
  rebuildHome(user: string): Promise<void>;
  /** From the log; what `older` holds below the log stays. */
  rebuildShared(name: SharedName, older?: Contents): Promise<void>;
  readExpectedHome(
    user: string,
    of: { readonly floor: number; readonly count: number; readonly deadline: number },
  ): Promise<readonly TimelineEntry[]>;
  readExpectedShared(name: SharedName): Promise<Contents>;
}

interface AuditorDeps
  extends Pick<AuditDeps, "retentionStart" | "tombstonedAmong" | "readBacklogStart" | "maxEntries" | "settleMs"> {
  readonly readStored: (timeline: TimelineName) => Promise<Contents | undefined>;
  readonly sample: (count: number) => Promise<string[]>;
  readonly rebuilding: Rebuilding;
  readonly log: Logger;
  readonly repaired: (result: "repaired" | "failed") => void;
}

export interface Auditor {
  sample(count: number): Promise<string[]>;
  homes(users: readonly string[], options?: AuditOptions): Promise<Report>;
  shared(name: SharedName, options?: AuditOptions): Promise<Report>;
  /** Rebuilds a timeline; never rejects. */
  repair(timeline: TimelineName): Promise<void>;
}

export function createAuditor({ readStored, sample, rebuilding, log, repaired, ...common }: AuditorDeps): Auditor {
  const ofHomes: AuditDeps = {
    ...common,
    readStored: (name) => readStored({ kind: "home", name }),
    readExpected: async (user, of) => {
      const entries = await rebuilding.readExpectedHome(user, of);
      // If there may be more, nothing is known below the last entry.
      return { entries, floor: entries.length < of.count ? 0 : (entries.at(-1)?.score ?? 0) };
    },
    rebuild: rebuilding.rebuildHome,
  };
  const ofShared = (name: SharedName): AuditDeps => {
    const stored = () => readStored({ kind: name, name });
    return {
      ...common,
      readStored: stored,
      readExpected: () => rebuilding.readExpectedShared(name),
      rebuild: async () => rebuilding.rebuildShared(name, await stored()),
    };
  };
  return {
    sample,
    homes: (users, options) => audit(ofHomes, users, options),
    shared: (name, options) => audit(ofShared(name), [name], options),
    repair: async ({ kind, name }) => {
      try {
        await (kind === "home" ? ofHomes : ofShared(kind)).rebuild(name);
        repaired("repaired");
      } catch (error) {
        repaired("failed");
        log.error({ timeline: kind, error: oneLine(error) }, "a timeline that differs could not be rebuilt");
      }
    },
  };
}
