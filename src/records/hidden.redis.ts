import { randomUUID } from "node:crypto";
import { LRUCache } from "lru-cache";
import { hiddenKey, hidersKey, homeKey } from "../contracts/keys.js";
import { chunked } from "../kernel/concurrency.js";
import { withDeadline } from "../kernel/deadlines.js";
import { AppError } from "../kernel/errors.js";
import { decodeId, encodeId } from "../kernel/ids.js";
import { SingleFlight } from "../kernel/sharing.js";
import { type Scripts, script } from "../platform/redis/scripts.js";
import { type Erased, writeUnlessErased } from "./erasures.js";
import { Hidden, type Hiding } from "./hidden.js";

const FILL_HIDDEN = script("fill-hidden", import.meta.url);

/** The field says that the hash is complete, or holds the mark of a fill. */
const STATE = "~state";
const COMPLETE = "complete";
const MAX_ROUNDS = 8;
const LAST_KNOWN_USERS = 10_000;
const HIDERS_A_CALL = 500;

type HiddenUsers = ReadonlyMap<string, Hiding>;

export type ReadHidden = (user: string) => Promise<HiddenUsers>;

export type HiddenStore = ReturnType<typeof createHiddenStore>;

/** The hiders outlive the user's hash, which no read renews: without the hash a home is not complete. */
export async function addHider({ command }: Pick<Scripts, "command">, target: string, user: string, ttlMs: number) {
  const hiders = hidersKey(target);
  await command("sadd", (client) => client.sadd(hiders, encodeId(user)));
  await command("pexpire", (client) => client.pexpire(hiders, 2 * ttlMs));
}

/**
 * Keeps in Redis whose drops each user does not see. A relation that changes makes a user's hash incomplete, and with it
 * their home; the next read fills it from the users service.
 *
 * A fill adds the user to the hiders of each target before the hash is complete. So fan-out, which asks for an author's
 * hiders first, finds every user whose complete hash has the author.
 */
export function createHiddenStore(
  { run, command }: Scripts,
  readHidden: ReadHidden,
  erased: Pick<Erased, "among">,
  ttlMs: number,
) {
  const flight = new SingleFlight<void>();
  const lastKnown = new LRUCache<string, Hidden>({ max: LAST_KNOWN_USERS });
  /** Adds to `hiding` the targets that get the user as a hider. */
  const fillOnce = async (user: string, hiding: Set<string>): Promise<boolean> => {
    const step = (what: string, mark: string, fields: readonly string[] = []) =>
      run(FILL_HIDDEN, [hiddenKey(user), homeKey(user)], [what, mark, ttlMs, ...fields]);
    const mark = (await step("begin", `~${randomUUID()}`)) as string | null;
    if (mark === null) return true;
    const listed = await readHidden(user);
    const gone = await erased.among([...listed.keys()]);
    const targets = new Map([...listed].filter(([target]) => !gone.has(target)));
    for (const target of targets.keys()) hiding.add(target);
    for (const some of chunked([...targets.keys()], HIDERS_A_CALL))
      await Promise.all(some.map((target) => addHider({ command }, target, user, ttlMs)));
    const fields = [...targets].flatMap(([target, hiding]) => [encodeId(target), hiding]);
    return (await step("finish", mark, fields)) === 1;
  };
  const held = async (user: string): Promise<Hidden | undefined> => {
    const fields = await command("hgetall", (client) => client.hgetall(hiddenKey(user)));
    const { [STATE]: state, ...targets } = fields;
    const hidden = new Hidden(
      user,
      new Map(Object.entries(targets).map(([token, hiding]) => [decodeId(token), hiding as Hiding])),
    );
    if (state === COMPLETE || hidden.size > 0) lastKnown.set(user, hidden);
    return state === COMPLETE ? hidden : undefined;
  };
  const forget = async (user: string, hiding: ReadonlySet<string>): Promise<void> => {
    const removeHider = (target: string) => command("srem", (client) => client.srem(hidersKey(target), encodeId(user)));
    for (const some of chunked([...hiding], HIDERS_A_CALL)) await Promise.all(some.map(removeHider));
    await command("del", (client) => client.del(hiddenKey(user)));
  };
  /** Callers share the work, which goes on when one of them gives up, at their deadline in ms since the epoch. */
  const fill = (user: string, deadline?: number): Promise<void> => {
    const filled = flight.run(user, () => {
      const hiding = new Set<string>();
      const write = async (): Promise<void> => {
        for (let round = 0; round < MAX_ROUNDS; round++) if (await fillOnce(user, hiding)) return;
        throw new AppError("unavailable", "whom the user hides changes faster than it can be read");
      };
      return writeUnlessErased(erased, user, { write, remove: () => forget(user, hiding) });
    });
    return deadline === undefined ? filled : withDeadline(filled, deadline);
  };
  return {
    held,
    fill,
    /** Reads the hidden users from the users service if Redis does not hold them. */
    async known(user: string, deadline?: number): Promise<Hidden> {
      for (let round = 0; round < MAX_ROUNDS; round++) {
        const hidden = await held(user);
        if (hidden) return hidden;
        await fill(user, deadline);
      }
      throw new AppError("unavailable", "whom the user hides changes faster than it can be read");
    },
    /** Returns the hidden users that this process knew last, for the time in which {@link known} rejects. */
    lastKnown: (user: string): Hidden => lastKnown.get(user) ?? new Hidden(user, new Map()),
  };
}
