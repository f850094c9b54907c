import { listOfReader } from "../../contracts/lists.js";
import { codeOf, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import type { Contents, State } from "../../state/index.js";
import { observeAudit } from "../observe.js";
import { type AuditDeps, type AuditOptions, audit, type TimelineKind, type TimelineName } from "./audit.js";

type SharedName = Exclude<TimelineKind, "home">;

/** Functions that rebuild timelines; see reads/index.ts. */
export interface Rebuilding {
  /** Rebuilds a home, or a list by its reader, and the timelines of the pulled authors that are merged into it. */
  rebuildHome(reader: string): Promise<void>;
  /** @throws AppError `notfound` if there is no such list */
  membersOf(list: string): Promise<readonly string[]>;
  /** Rebuilds from the log. Entries of `older` from below the log stay. */
  rebuildShared(name: SharedName, older?: Contents): Promise<void>;
  readExpectedHome(
    user: string,
    range: { readonly floor: number; readonly count: number; readonly deadline: number },
  ): Promise<Contents>;
  readExpectedShared(name: SharedName): Promise<Contents>;
  /** Resolves to the drops of a pulled author that pages of a user leave out. */
  hiddenOf(user: string, author: string, drops: readonly string[]): Promise<ReadonlySet<string>>;
}

interface AuditorDeps extends Pick<AuditDeps, "readUnapplied" | "isKnown" | "maxEntries" | "settleMs"> {
  readonly state: State;
  readonly rebuilding: Rebuilding;
  readonly log: Logger;
}

export type Auditor = ReturnType<typeof createAuditor>;

/** Audits timelines, and rebuilds those that differ. */
export function createAuditor(deps: AuditorDeps) {
  const { state, rebuilding, log, readUnapplied, isKnown, maxEntries, settleMs } = deps;
  const { fences, audited: reads } = state;
  const { retentionStart, tombstonedAmong } = fences;
  const common = { retentionStart, tombstonedAmong, readUnapplied, isKnown, maxEntries, settleMs };
  const membersIfAny = (list: string) =>
    rebuilding.membersOf(list).catch((error: unknown) => {
      if (["notfound", "invalid"].includes(codeOf(error))) return undefined;
      throw error;
    });
  const ofHomes: AuditDeps = {
    ...common,
    isKnown: async (reader) => {
      const list = listOfReader(reader);
      return list === undefined ? isKnown(reader) : (await membersIfAny(list)) !== undefined;
    },
    readStored: async (reader) => {
      const list = listOfReader(reader);
      if (list === undefined) return reads.home(reader, rebuilding.hiddenOf);
      const members = await membersIfAny(list);
      return members && reads.list(list, members);
    },
    readExpected: async (user, range) => {
      const { entries, floor } = await rebuilding.readExpectedHome(user, range);
      // If there may be more drops, nothing is known below the last entry.
      return { entries, floor: entries.length < range.count ? floor : (entries.at(-1)?.score ?? 0) };
    },
    rebuild: rebuilding.rebuildHome,
  };
  const ofShared = (name: SharedName): AuditDeps => ({
    ...common,
    readStored: () => reads.shared(name),
    readExpected: () => rebuilding.readExpectedShared(name),
    rebuild: async () => rebuilding.rebuildShared(name, await reads.shared(name)),
  });
  return {
    /** Returns this number of random users and readers of lists, whose timelines are stored. */
    sample: reads.sample,
    homes: (users: readonly string[], options?: AuditOptions) => audit(ofHomes, users, options),
    shared: (name: SharedName, options?: AuditOptions) => audit(ofShared(name), [name], options),
    /** Rebuilds a timeline; never rejects. */
    repair: async ({ kind, name }: TimelineName, foundAt: number): Promise<void> => {
      try {
        await (kind === "home" ? ofHomes : ofShared(kind)).rebuild(name);
        observeAudit.repaired([performance.now() - foundAt]);
      } catch (error) {
        observeAudit.unrepaired(1);
        log.error({ timeline: kind, error: oneLine(error) }, "a timeline that differs could not be rebuilt");
      }
    },
  };
}
