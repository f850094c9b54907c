import { z } from "zod";
import { parseJson } from "../contracts/events.js";
import { understood } from "../contracts/untrusted.js";
import type { Handler } from "../delivery/handler.js";
import { readId } from "../kernel/fields.js";
import { createBatch } from "../kernel/sharing.js";
import { REACTION_KINDS, type ReactionKey } from "./events.js";
import type { CountReactions } from "./reactions.sql.js";
import { readDropId } from "./request.js";

const BATCH = 500;

const message = z.object({ drop_id: z.string(), kind: z.enum(REACTION_KINDS), actor_id: z.string() });

/** Handles `engagement.changed`. A message only names a reaction, so that it may arrive twice and in any order. */
export function createCountEngagement({
  count,
  observe,
}: {
  readonly count: CountReactions;
  readonly observe: { counted(reactions: number): void };
}): Handler {
  const batch = createBatch<ReactionKey>(BATCH, async (reactions) => {
    await count(reactions);
    observe.counted(reactions.length);
  });
  return ({ body }) => batch(parseReaction(body));
}

function parseReaction(body: Uint8Array): ReactionKey {
  const { drop_id, kind, actor_id } = understood(message, parseJson(body));
  return { dropId: readDropId("drop_id", drop_id), kind, actorId: readId("actor_id", actor_id) };
}
