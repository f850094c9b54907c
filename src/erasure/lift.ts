import { AppError, invalid } from "../kernel/errors.js";
import { type Clock, MINUTE, sharedNow } from "../kernel/time.js";
import { normalUri } from "../kernel/urls.js";
import { isRemoteActor, type State } from "../state/index.js";
import { stillRunning } from "./lift.sql.js";

export interface LiftDeps {
  readonly list: Pick<State["erasedList"], "isErased" | "lifted" | "reports">;
  readonly record: State["lift"];
  /** Undefined without a database. */
  readonly tables?: {
    readonly lastMarked: (actor: string) => Promise<number | undefined>;
    readonly removeMarkers: (actor: string) => Promise<void>;
  };
  readonly now?: Clock;
}

/** The stream knows the message id of `user_erased` for ten minutes: it would take a later erasure for the same. */
const SETTLED_MS = 11 * MINUTE;

/**
 * Lifts the erasure of a remote actor. The tables come last: while they refuse the actor no later erasure can begin, whose
 * marker would go, too. A lift that was interrupted is repeated. Resolves to the actor, whose URI is as it is stored.
 *
 * @throws AppError `invalid` if the id is of no remote actor, `notfound` if nothing is erased, `conflict` if the erasure
 * runs or is too new
 */
export async function liftErasure(deps: LiftDeps, uri: string, reason: string): Promise<string> {
  if (!isRemoteActor(uri)) throw invalid("uri", "is of no remote actor: the erasure of a user of this server stays");
  // Versions before 0.3.0 stored each spelling.
  for (const actor of new Set([uri, normalUri(uri)])) {
    const changedAt = await lastChange(deps, actor);
    if (changedAt === undefined) continue;
    await refuseUnsettled(deps, actor, changedAt + SETTLED_MS);
    await deps.record.lift(actor, reason);
    await deps.tables?.removeMarkers(actor);
    return actor;
  }
  throw new AppError("notfound", "the actor is not erased");
}

/** Resolves to undefined for an actor who was never erased. */
async function lastChange({ list, record, tables }: LiftDeps, actor: string): Promise<number | undefined> {
  const times = await Promise.all([record.lastStored(actor), tables?.lastMarked(actor)]);
  const last = Math.max(...times.map((time) => time ?? 0));
  return last > 0 || (await list.lifted(actor)) !== undefined ? last : undefined;
}

async function refuseUnsettled({ list, now = sharedNow }: LiftDeps, actor: string, settledAt: number): Promise<void> {
  if ((await list.isErased(actor)) && ![...(await list.reports(actor)).values()].every(({ done }) => done))
    throw stillRunning();
  if (now() >= settledAt) return;
  const from = new Date(settledAt).toISOString();
  throw new AppError("conflict", `the erasure was at work less than 11 minutes ago: it can be lifted from ${from} on`);
}
