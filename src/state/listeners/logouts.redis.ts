import { LOGGED_OUT_EVENT, type LoggedOutNotification } from "../../contracts/stream-events.js";
import { notifySubject } from "../../contracts/subjects.js";
import { encodeId } from "../../kernel/ids.js";
import { DAY } from "../../kernel/time.js";
import type { Publish } from "../../platform/nats/publish.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { traceHeaders } from "../../telemetry/spans.js";
import { type Erased, writeUnlessErased } from "../erased/erasures.js";
import { LOGOUTS_KEY } from "../keys.js";
import { script } from "../scripts.redis.js";

const RECORD_LOGOUT = script("record-logout", import.meta.url);

/**
 * Time for which a logout is stored. Browsers keep no cookie longer. A token that lives longer is valid again
 * afterwards.
 */
const KEPT_MS = 400 * DAY;

/** Resolves to the times, ms since the epoch, before which tokens of these users are refused. */
export type LogoutsAmong = (users: readonly string[]) => Promise<ReadonlyMap<string, number>>;

/**
 * Returns true for a token issued up to the logout. `iat` has whole seconds: a token of the second of the logout may be
 * older.
 */
export const isRefused = (issuedAt: number, loggedOutAt: number | undefined): boolean =>
  loggedOutAt !== undefined && issuedAt <= loggedOutAt;

/** Rejects with AppError `unavailable` while Redis is away. */
export const createLogoutsAmong =
  ({ command }: Pick<Scripts, "command">): LogoutsAmong =>
  async (users) => {
    const times = await command("zmscore", (client) => client.zmscore(LOGOUTS_KEY, ...users.map(encodeId)));
    return new Map(
      users.flatMap((user, index) => (times[index] == null ? [] : [[user, Number(times[index])] as const])),
    );
  };

export interface LogOutDeps {
  readonly scripts: Pick<Scripts, "run" | "command">;
  readonly publish: Publish;
  readonly erased: Pick<Erased, "among">;
}

/**
 * Ends all streams of a user, and refuses the tokens that were issued earlier. Every gateway is notified at once; one
 * that misses it reads the record when it renews its registrations.
 *
 * @throws AppError `notfound` if the user is erased
 */
export const createLogOut =
  ({ scripts, publish, erased }: LogOutDeps) =>
  async (user: string) => {
    const token = encodeId(user);
    const loggedOutAt = await writeUnlessErased(erased, user, {
      write: async () => Number(await scripts.run(RECORD_LOGOUT, [LOGOUTS_KEY], [token, KEPT_MS])),
      remove: () => scripts.command("zrem", (client) => client.zrem(LOGOUTS_KEY, token)),
    });
    const body: LoggedOutNotification = { event: LOGGED_OUT_EVENT, at: loggedOutAt };
    const [id, headers] = [`logged_out:${token}:${loggedOutAt}`, traceHeaders()];
    await publish({ subject: notifySubject(user), body: JSON.stringify(body), id, headers });
    return { user_id: user, refused_before: new Date(loggedOutAt).toISOString() };
  };
