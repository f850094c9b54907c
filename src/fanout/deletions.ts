import { currentOf, type Fences } from "../state/index.js";
import type { AdmittedChange } from "./change.js";
import type { FanoutDeps } from "./deps.js";
import type { Plan } from "./plan.js";
import { tellDeletions } from "./shared.js";

type Authors = Awaited<ReturnType<Fences["recordTombstones"]>>;

/** Plans deletions whose tombstones are set. */
export async function planDeletions(
  deps: FanoutDeps,
  drops: readonly AdmittedChange[],
  authors: Authors,
): Promise<Plan[]> {
  const { writer, standings, veiled } = deps;
  await writer.rememberCreations(authors);
  await tellDeletions(deps, drops, authors);
  if (standings.size > 0) await veiled.remove([...authors.keys()]);
  await writer.removeShared([...authors.keys()]);
  await removeFromErased(deps, drops);
  return drops.map(({ event: { name, payload }, admitted_at, silent, trace }): Plan => {
    const { drop_id } = payload;
    const change = { action: "remove", event: name, drop_id, created_at: admitted_at, admitted_at, silent } as const;
    return { change, user_id: authors.get(drop_id), includeAuthor: true, trace };
  });
}

/** Removes drops from the timelines of erased authors, which may still be merged into pages. */
async function removeFromErased(
  { authors, authorStates }: FanoutDeps,
  drops: readonly AdmittedChange[],
): Promise<void> {
  const erased = drops.filter(({ erasedAuthor }) => erasedAuthor !== undefined);
  if (erased.length === 0) return;
  const registry = await currentOf(authorStates);
  const pulled = erased.filter(({ erasedAuthor = "" }) => registry.has(erasedAuthor));
  await Promise.all(pulled.map(({ event, erasedAuthor = "" }) => authors.remove(erasedAuthor, event.payload.drop_id)));
}

/** Sets the tombstones of deletions. Returns the authors of the deleted drops that are known and not erased. */
export async function recordTombstones(
  { fences, erased }: FanoutDeps,
  drops: readonly AdmittedChange[],
): Promise<Authors> {
  const deletions = drops.flatMap(({ event, admitted_at: time }) =>
    event.name === "drop_deleted" ? [{ drop: event.payload.drop_id, author: event.payload.user_id, time }] : [],
  );
  const authors = await fences.recordTombstones(deletions);
  // The event of a remote deletion need not name the actor.
  const learnt = deletions.flatMap(({ drop, author }) => (author === undefined ? (authors.get(drop) ?? []) : []));
  const gone = await erased.among([...new Set(learnt)]);
  if (gone.size === 0) return authors;
  return new Map(
    [...authors].map(([drop, author = ""]) => [drop, author === "" || gone.has(author) ? undefined : author]),
  );
}
