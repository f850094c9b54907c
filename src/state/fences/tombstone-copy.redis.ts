import { oneLine } from "../../kernel/errors.js";
import { Fingerprints } from "../../kernel/fingerprints.js";
import type { Logger } from "../../kernel/logger.js";
import { startLoop } from "../../kernel/loop.js";
import { DAY, pause, SECOND } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { Tracking } from "../../platform/redis/tracking.js";
import { FLOOR_MEMBER, TOMBSTONES_KEY } from "../keys.js";

/** Number of members of a scan, which takes the server half a ms; the pause leaves it to other work. */
const MEMBERS_A_CALL = 1_000;
const PAUSE_MS = 5;
/** Maximum number of tombstones in the copy, 32 MB. */
const MOST = 2 ** 22;
/** Maximum age of the copy. Tombstones that the server no longer has leave the copy when it is made anew. */
const MAX_AGE_MS = DAY;

interface TombstoneCopyDeps {
  readonly scripts: Pick<Scripts, "command">;
  /** Tracking that publishes deleted drops, each when its tombstone is recorded. */
  readonly tracking: Pick<Tracking, "announcements" | "isOn" | "upToDate">;
  readonly log: Logger;
  /** Set by tests, to a smaller number. */
  readonly most?: number;
}

/** Set of all drops with a tombstone, and a few other drops. */
export type Tombstones = Pick<Fingerprints, "mayHave">;

export type TombstoneCopy = ReturnType<typeof startTombstoneCopy>;

/**
 * Holds a copy of the tombstones: those that the server had, and all that it has announced since before they were read.
 * The copy is lost with the connection that announces, and read again.
 */
export function startTombstoneCopy({ scripts, tracking, log, most = MOST }: TombstoneCopyDeps) {
  const { command } = scripts;
  let copy: { readonly tombstones: Fingerprints; readonly since: number } | undefined;
  /** Copy that is being read. */
  let next: Fingerprints | undefined;
  const forget = (isPublisher: boolean): void => {
    if (!isPublisher) return;
    copy = undefined;
    next = undefined;
  };
  const announced = (drop: string): void => {
    next?.add(drop);
    copy?.tombstones.add(drop);
    if (copy && copy.tombstones.size > most) copy = undefined;
  };
  tracking.announcements.on("lost", forget);
  tracking.announcements.on("published", announced);

  /**
   * Reads the tombstones. A scan returns each member that exists all the time, if one server has answered all of it.
   */
  const scan = async (into: Fingerprints, stopping: AbortSignal): Promise<boolean> => {
    for (let cursor = "0"; !stopping.aborted; await pause(PAUSE_MS, stopping)) {
      const from = cursor;
      const [to, flat] = await command("zscan", (client) =>
        client.zscan(TOMBSTONES_KEY, from, "COUNT", MEMBERS_A_CALL),
      );
      for (let index = 0; index < flat.length; index += 2) into.add(flat[index] as string);
      cursor = to;
      if (!(await tracking.upToDate([])) || next !== into) return false;
      if (cursor === "0") return true;
    }
    return false;
  };
  const areKnown = async (): Promise<boolean> => {
    const floor = await command("zscore", (client) => client.zscore(TOMBSTONES_KEY, FLOOR_MEMBER));
    return floor !== null && Number(floor) >= 0;
  };
  const areFew = async (): Promise<boolean> =>
    (await command("zcard", (client) => client.zcard(TOMBSTONES_KEY))) <= most;
  const read = async (stopping: AbortSignal): Promise<void> => {
    if (copy && performance.now() - copy.since < MAX_AGE_MS) return;
    copy = undefined;
    if (!tracking.isOn([]) || !(await areKnown()) || !(await areFew())) return;
    const since = performance.now();
    const tombstones = new Fingerprints();
    next = tombstones;
    // The tombstones may be lost during the scan.
    const isWhole = (await scan(tombstones, stopping)) && (await areKnown());
    if (isWhole && next === tombstones) copy = { tombstones, since };
    next = undefined;
  };
  const loop = startLoop({
    work: read,
    everyMs: SECOND,
    backoffCapMs: 10 * SECOND,
    failed: (error, failures) => {
      if (failures === 3)
        log.warn({ error: oneLine(error) }, "the tombstones cannot be copied: each page asks for them");
    },
    closeMs: SECOND,
  });
  return {
    size: (): number => copy?.tombstones.size ?? 0,
    /** Resolves to a copy that has all tombstones recorded before the call; to undefined if there is none. */
    upToDate: async (): Promise<Tombstones | undefined> => {
      const current = copy;
      const confirmed = current && (await tracking.upToDate([]));
      return confirmed && copy === current ? current.tombstones : undefined;
    },
    close: async (): Promise<void> => {
      tracking.announcements.off("lost", forget);
      tracking.announcements.off("published", announced);
      await loop.close();
    },
  };
}
