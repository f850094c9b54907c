import { type Person, type Place, peopleOf } from "../../contracts/people.js";
import type { RedisClient } from "../../platform/redis/clusters.js";
import { redisError } from "../../platform/redis/errors.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { type Command, sendCommands } from "../../platform/redis/send.js";
import { isWrongType } from "../../platform/redis/wrong-types.js";
import { classify } from "../kinds.js";
import { scanKeys } from "../scan-keys.redis.js";
import type { Send } from "./holdings.js";
import { lookAt } from "./look.js";
import { readOwnDrops } from "./own-drops.redis.js";

/** Keys of this service: other programs may use the same Redis. */
const OURS = /^\{?(timeline|sse_|analysis:)/;

export interface Verifying {
  readonly add: (place: Place) => void;
  readonly checked: (keys: number) => void;
}

/** Finds every key that names a person, and changes nothing. */
export async function verifyKeys(scripts: Scripts, person: Person, { add, checked }: Verifying): Promise<void> {
  const send = createReadOnly(scripts.client);
  const subjects = { ...peopleOf([person]), ...(await readOwnDrops(send, [person.user])), met: () => undefined };
  let count = 0;
  for await (const { keys } of scanKeys(scripts)) {
    for (const { kind, key, items } of await lookAt(send, keys, subjects, { stays: true })) {
      const { keys: place, stays } = kind;
      const why = stays ?? (items === undefined ? "a key of the user" : "what names the user, or is theirs");
      const finding = { place, example: key, count: items?.length ?? 1, mayStay: stays !== undefined, why };
      add({ server: "Redis", ...finding });
    }
    for (const key of keys.filter((name) => isUnknown(name, person)))
      add({ server: "Redis", place: key, count: 1, mayStay: false, why: "a key of no known kind" });
    count += keys.length;
    checked(count);
  }
}

const isUnknown = (key: string, { token }: Person): boolean =>
  OURS.test(key) && classify(key) === undefined && key.split(/[{}:.]/).includes(token);

/** Returns a sender that only reads. A key of a wrong type names nobody; a command of the service would remove it. */
function createReadOnly(client: RedisClient): Send {
  const sendOne = (command: Command): Promise<unknown> =>
    sendCommands(client, [command]).then(
      ([reply]) => reply,
      (error: unknown) => {
        if (isWrongType(error)) return NOTHING[command[0]] ?? null;
        throw error;
      },
    );
  return async (commands) => {
    if (commands.length === 0) return [];
    try {
      return await sendCommands(client, commands);
    } catch (error) {
      if (!isWrongType(error)) throw redisError(error);
      return Promise.all(commands.map(sendOne));
    }
  };
}

const NOTHING: Readonly<Record<string, unknown>> = {
  zrange: [],
  smismember: [],
  zmscore: [],
  hmget: [],
  hscan: ["0", []],
  zscan: ["0", []],
};
