import { DAY } from "../kernel/time.js";
import { createdAtOf } from "./drop-ids.js";
import type { CreateOptions, NewDrop } from "./ports.js";
import { isUri } from "./request.js";
import { NOW, Parameters, type Statement, VERSION } from "./statement.js";

/** A key makes one drop in this time. */
export const KEY_LIFETIME_MS = DAY;

/**
 * The gates come first and let one row through, or none: what is replied to is there, and stays there until this is
 * committed (FOR SHARE); the key is not taken. Everything else is made of that row.
 */
export function createStatement(drop: NewDrop, { idempotencyKey, created, replied }: CreateOptions): Statement {
  const parameters = new Parameters();
  const id = parameters.add(drop.dropId, "uuid");
  const author = parameters.add(drop.userId, "text");
  const replyTo = parameters.add(drop.replyTo === "" ? null : drop.replyTo, "text");
  const gates: string[] = [];
  const parts: string[] = [];
  if (drop.replyTo !== "") {
    const parent = isUri(drop.replyTo) ? foreign(replyTo) : own(parameters.add(drop.replyTo, "uuid"));
    parts.push(`parent AS (${parent})`);
    gates.push("parent");
  }
  if (idempotencyKey !== "") {
    const key = parameters.add(idempotencyKey, "text");
    const from = gates.length === 0 ? "" : `FROM ${gates.join(", ")}`;
    parts.push(`claim AS (
      INSERT INTO posts.idempotency AS i (user_id, key, drop_id, created_at)
      SELECT ${author}, ${key}, ${id}, ${NOW} ${from}
      ON CONFLICT (user_id, key) DO UPDATE SET drop_id = excluded.drop_id, created_at = excluded.created_at
        WHERE i.created_at < ${NOW} - ${KEY_LIFETIME_MS}
      RETURNING 1
    )`);
    gates.push("claim");
  }
  const texts = `${parameters.add(drop.summary, "text")}, ${parameters.add(drop.body, "text")}`;
  const seen = `${parameters.add(drop.visibility, "smallint")}, ${parameters.add(drop.recipients, "text[]")}`;
  const createdAt = parameters.add(createdAtOf(drop.dropId), "bigint");
  parts.push(`made AS (
    INSERT INTO posts.drops (drop_id, user_id, reply_to, summary, body, visibility, recipients, updated_at, changed_at)
    SELECT ${id}, ${author}, ${replyTo}, ${texts}, ${seen}, ${createdAt}, ${NOW}
    ${gates.length === 0 ? "" : `FROM ${gates.join(", ")}`}
    RETURNING drop_id
  )`);
  if (replied !== undefined) {
    parts.push(`reply AS (
      INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, changed_at)
      SELECT parent.drop_id, 'reply', made.drop_id::text, true, 1, ${NOW} FROM parent, made
      RETURNING version
    )`);
    parts.push(`replying AS (${parameters.insertEvent(replied, "reply", VERSION)})`);
  }
  const text = `WITH ${parts.join(", ")} ${parameters.insertEvent(created, "made")} RETURNING key`;
  return { text, values: parameters.values };
}

const own = (id: string): string =>
  `SELECT drop_id FROM posts.drops WHERE drop_id = ${id} AND deleted_at IS NULL FOR SHARE`;
const foreign = (uri: string): string =>
  `SELECT FROM posts.remote_objects WHERE uri = ${uri} AND kind = 1 AND deleted_at IS NULL`;
