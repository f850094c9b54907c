import type { ErasureStep } from "../gen/avion/users.js";
import { mapLimited } from "../kernel/concurrency.js";
import { throwIfStopping } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import type { Logger } from "../kernel/logger.js";
import { type Loop, startLoop, warnOnce } from "../kernel/loop.js";
import { countdown, pause, SECOND } from "../kernel/time.js";
import type { Erased, ListCache, ListName } from "../state/index.js";
import type { ErasureRows } from "./erasure-rows.sql.js";
import type { ErasureStore, RunningErasure } from "./erasures.sql.js";
import { observeUsers } from "./observe.js";

/** The users service does these itself, in this order. The parts that forget the user elsewhere report theirs. */
export const OWN_STEPS = ["followings", "followers", "relations", "profile", "outbox", "lists"] as const;
type OwnStep = (typeof OWN_STEPS)[number];

export interface ErasuresDeps {
  readonly store: Omit<ErasureStore, "erase" | "isErased" | "refuseUnknown" | "unknownDue" | "completeUnknown">;
  readonly rows: ErasureRows;
  readonly cache: Pick<ListCache, "discard" | "forget">;
  readonly erased: Pick<Erased, "record" | "reports">;
  /** Removes the timeline of a list from Redis. */
  readonly forgetTimeline: (list: string) => Promise<unknown>;
  /** Resolves once every write that began before the erasure has ended. */
  readonly untilOlderEnded: (stopping: AbortSignal) => Promise<void>;
  readonly wakeRelay: () => void;
  readonly turnMs?: number;
  readonly log: Logger;
}

const AT_ONCE = 4;
const CLAIMED_AT_ONCE = 16;

/** Time of one turn: an erasure may have a million rows, and others wait for theirs. */
const TURN_MS = 5 * SECOND;

/** Every step can be repeated, and may run in several processes at once: any of them goes on where one has ended. */
export function startErasures(deps: ErasuresDeps): Loop {
  return startLoop({
    work: async (stopping) => ((await eraseDue(deps, stopping)) ? 0 : undefined),
    everyMs: SECOND,
    failed: warnOnce(deps.log, "erasures of users cannot go on; it is tried again"),
  });
}

const UNKNOWN_AT_ONCE = 1_000;

export interface UnknownDeps extends Pick<ErasuresDeps, "untilOlderEnded" | "wakeRelay" | "log"> {
  readonly store: Pick<ErasureStore, "unknownDue" | "completeUnknown" | "erase">;
}

/** Completes the refusals of users whom no row named. A write that began before the refusal may have named one since. */
export function startCompletingUnknown({ store, untilOlderEnded, wakeRelay, log }: UnknownDeps): Loop {
  return startLoop({
    work: async (stopping) => {
      const users = await store.unknownDue(UNKNOWN_AT_ONCE);
      if (users.length === 0) return undefined;
      await untilOlderEnded(stopping);
      for (const user of await store.completeUnknown(users)) if (await store.erase(user, OWN_STEPS)) wakeRelay();
      return users.length === UNKNOWN_AT_ONCE ? 0 : undefined;
    },
    everyMs: SECOND,
    failed: warnOnce(log, "refusals of unknown users cannot be completed; it is tried again"),
  });
}

/** Resolves to whether more is due. The failure of one erasure does not hold up the others. */
async function eraseDue(deps: ErasuresDeps, stopping: AbortSignal): Promise<boolean> {
  const { claimed, oldestMs } = await deps.store.claim(CLAIMED_AT_ONCE);
  observeUsers.erasing(oldestMs);
  const failures: unknown[] = [];
  const unfinished = await mapLimited(claimed, AT_ONCE, async (erasure) => {
    try {
      return !(await proceed(deps, erasure, stopping));
    } catch (error) {
      failures.push(error);
      return false;
    }
  });
  if (failures.length > 0 && !stopping.aborted) throw failures[0];
  return claimed.length === CLAIMED_AT_ONCE || unfinished.includes(true);
}

/** Does the steps that can be done now. Resolves to false if the turn ends before they are done. */
async function proceed(deps: ErasuresDeps, erasure: RunningErasure, stopping: AbortSignal): Promise<boolean> {
  const { store, cache, wakeRelay, turnMs = TURN_MS } = deps;
  const { user_id: user } = erasure;
  const steps = (await store.get(user))?.steps ?? [];
  const done = new Set(steps.filter((step) => step.done).map(({ name }) => name));
  const open = OWN_STEPS.filter((name) => !done.has(name));
  if (open.length > 0) await deps.untilOlderEnded(stopping);
  const turn = { stopping, msLeft: countdown(turnMs) };
  for (const name of open) {
    if (!(await DO[name](createStep(deps, erasure, { name, ...turn })))) {
      await store.release(user);
      return false;
    }
    await failpoint("erasure-step", user, name);
    await store.setStep(user, { name, done: true, left: 0 });
  }
  if (!(await partsAreDone(deps, user, steps))) {
    if (await store.announceAgain(erasure)) wakeRelay();
    return true;
  }
  await failpoint("erasure-reported", user);
  // Calls that were under way when the lists were forgotten may have left a key.
  await cache.forget(user);
  if (await store.complete(user)) observeUsers.erased("completed");
  return true;
}

async function partsAreDone({ store, erased }: ErasuresDeps, user: string, before: readonly ErasureStep[]) {
  const known = new Map(before.map((step) => [step.name, step]));
  let all = true;
  for (const [name, { done, left: remaining }] of await erased.reports(user)) {
    const step = known.get(name);
    if (step?.done) continue;
    if (!done) all = false;
    if (step?.done !== done || step.left !== remaining)
      await store.setStep(user, { name, done, left: done ? 0 : remaining });
  }
  return all;
}

interface Step extends ErasuresDeps {
  readonly erasure: RunningErasure;
  readonly user: string;
  /** Works until no row is left, and records how many are; resolves to false if the turn is over before. */
  readonly untilNone: (count: () => Promise<number>, work: () => Promise<number>) => Promise<boolean>;
  readonly throwIfErasureStops: () => void;
}

/** Pause after a turn without work: another process is at work on the rows. */
const IN_OTHER_HANDS_MS = SECOND / 20;

interface Turn {
  readonly stopping: AbortSignal;
  readonly msLeft: () => number;
}

function createStep(
  deps: ErasuresDeps,
  erasure: RunningErasure,
  { name, stopping, msLeft }: Turn & { readonly name: string },
): Step {
  const user = erasure.user_id;
  const throwIfErasureStops = (): void => throwIfStopping(stopping, "the erasure is completed");
  const untilNone: Step["untilNone"] = async (count, work) => {
    for (let remaining = await count(); remaining > 0; throwIfErasureStops()) {
      const done = await work();
      if (done === 0) await pause(IN_OTHER_HANDS_MS, stopping);
      else await deps.store.setStep(user, { name, done: false, left: Math.max(0, remaining - done) });
      if (msLeft() === 0) return false;
      remaining = remaining > done && done > 0 ? remaining - done : await count();
    }
    return true;
  };
  return { ...deps, erasure, user, untilNone, throwIfErasureStops };
}

const DO: Readonly<Record<OwnStep, (step: Step) => Promise<boolean>>> = {
  followings: (step) => removeEdges(step, { list: "following", others: "followers" }),
  followers: (step) => removeEdges(step, { list: "followers", others: "following" }),
  relations: async (step) => {
    const { rows, user, untilNone } = step;
    const remove = (by: "user_id" | "target_id") =>
      untilNone(
        () => rows.countRelations(by, user),
        () => rows.removeRelations(by, user),
      );
    return (await remove("user_id")) && (await remove("target_id")) && (await removeLists(step));
  },
  profile: async ({ rows, user }) => {
    await rows.removeProfile(user);
    return true;
  },
  outbox: removeEvents,
  lists: async ({ cache, erased, erasure, user }) => {
    await erased.record(user, erasure.version);
    await cache.forget(user);
    return true;
  },
};

/** Removes the lists of the user, with their timelines, and the user from the lists of others. */
async function removeLists({ rows, forgetTimeline, user, untilNone }: Step): Promise<boolean> {
  for (const list of await rows.listsOf(user)) {
    await forgetTimeline(list);
    await rows.removeList(list);
    await forgetTimeline(list);
  }
  const removeMembers = (by: "user_id" | "member_id") =>
    untilNone(
      () => rows.countMembers(by, user),
      () => rows.removeMembers(by, user),
    );
  return (await removeMembers("user_id")) && (await removeMembers("member_id"));
}

/** A row of another's list stays until that list is discarded from the cache: a process that ends leaves none there. */
async function removeEdges(
  { rows, cache, user, untilNone }: Step,
  { list, others }: Readonly<Record<"list" | "others", ListName>>,
): Promise<boolean> {
  const removeNaming = async (): Promise<number> => {
    await rows.endEdges(others, user);
    await failpoint("erasure-ended", user);
    const owners = await rows.endedOwners(others, user);
    await Promise.all(owners.map((owner) => cache.discard(others, owner)));
    await failpoint("erasure-dropped", user);
    return rows.removeEnded(others, user, owners);
  };
  return (
    (await untilNone(() => rows.countNaming(others, user), removeNaming)) &&
    (await untilNone(
      () => rows.countOwn(list, user),
      () => rows.removeOwn(list, user),
    ))
  );
}

/** No new row can name the user, so one scan finds every remaining row. Its progress is not stored. */
async function removeEvents({ rows, user, throwIfErasureStops }: Step): Promise<boolean> {
  const last = await rows.lastEvent();
  for (let after: number | undefined = 0; after !== undefined; throwIfErasureStops())
    after = await rows.removeEvents(user, after, last);
  return true;
}
