import { readFileSync } from "node:fs";
import { Redis } from "ioredis";
import { allOf, chunked, grouped, mapLimited } from "../../kernel/concurrency.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { type Logger, silent } from "../../kernel/logger.js";
import { pause } from "../../kernel/time.js";
import { histogram } from "../../telemetry/meters.js";
import { inSpan, SpanKind } from "../../telemetry/spans.js";
import { Refusal, refusalOf } from "../refusals.js";
import { type Nodes, nodesOf, type RedisClient } from "./clusters.js";
import { lacksRight, redisError } from "./errors.js";
import { createWrongTypes, isWrongType, removingWrongTypes, type WithRemoved } from "./wrong-types.js";

/** A Lua script. Metrics and spans bear its name; no two of a process have the same one. */
export interface Script {
  readonly name: string;
  readonly lua: string;
  /** Each call has a span of its own. */
  readonly spanned: boolean;
  /** Texts of the reply are buffers. */
  readonly inBytes: boolean;
}

/** The script `name`.lua in the folder of the module whose `import.meta.url` is given. */
export const script = (name: string, url: string, { spanned = false, inBytes = false } = {}): Script => ({
  name,
  lua: readFileSync(new URL(`./${name}.lua`, url), "utf8"),
  spanned,
  inBytes,
});

const REMOVE_WRONG_TYPES = script("remove-wrong-types", import.meta.url);

const PING_MS = 250;

type Argument = string | number | Buffer;
type Reply = unknown;

const commandTime = histogram(
  "timeline_redis_command_seconds",
  "Time a command to Redis took",
  [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5],
);

/** Commands that have a span of their own. Writes to many timelines share one (see fenced.redis.ts), reads have one each. */
const SPANNED: ReadonlySet<string> = new Set(["zscore", "zmscore"]);
const SPAN = { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } } as const;

export type Scripts = ReturnType<typeof createScripts>;

/** The client flattens the list: a call with as many arguments could exceed the stack. */
type Command = (args: readonly unknown[]) => Promise<Reply>;

interface Commands {
  readonly usual: Command;
  readonly removing: Command;
}

/**
 * The client sends a script's hash, and its text if the server does not know it. A script or a command that meets a
 * key of a wrong type runs again: all of them may be repeated. A script is registered when it is first called.
 */
export function createScripts(client: RedisClient, log: Logger = silent, lost?: (refusal: Refusal) => void) {
  const known = new Map<Script, Commands>();
  const commandsOf = (script: Script): Commands => {
    const defined = known.get(script);
    if (defined) return defined;
    const removing = removingWrongTypes(REMOVE_WRONG_TYPES.lua, script.lua);
    const commands = {
      usual: define(client, script),
      removing: define(client, { ...script, name: `${script.name}!`, lua: removing }),
    };
    known.set(script, commands);
    return commands;
  };
  const breaker = createCircuitBreaker(client);
  const wrongTypes = createWrongTypes((args) => commandsOf(REMOVE_WRONG_TYPES).usual(args), log);
  const fail = (error: unknown): never => {
    breaker.note(error);
    const failure = redisError(error);
    if (failure instanceof Refusal && lacksRight(failure.cause)) lost?.(failure);
    // The client itself says only that it is not connected.
    throw refusalOf(client) ?? failure;
  };
  const measured: Measured = async (name, call, again) => {
    breaker.check();
    const started = performance.now();
    try {
      return await call(client);
    } catch (error) {
      return await (isWrongType(error) ? again(error).catch(fail) : fail(error));
    } finally {
      commandTime.record((performance.now() - started) / 1_000, { command: name });
    }
  };
  const inSpanIf = <T>(spanned: boolean, name: string, work: () => Promise<T>): Promise<T> =>
    spanned ? inSpan(`redis ${name}`, SPAN, work) : work();
  const run = ({ name, spanned }: Script, { usual, removing }: Commands, args: readonly unknown[]): Promise<Reply> => {
    const again = async () => wrongTypes.resultOf((await removing(args)) as WithRemoved);
    return inSpanIf(spanned, name, () => measured(name, () => usual(args), again));
  };
  const nodes = client instanceof Redis ? oneServer(client) : nodesOf(client);
  return {
    client,
    ...nodes,
    ...createNodeCalls(nodes, log),
    run: (script: Script, keys: readonly string[], args: readonly Argument[]): Promise<Reply> =>
      run(script, commandsOf(script), [keys.length, ...keys, ...args]),
    command: <T>(name: string, call: (client: RedisClient) => Promise<T>): Promise<T> => {
      const again = (error: unknown) => wrongTypes.callAgain(() => call(client), error);
      return inSpanIf(SPANNED.has(name), name, () => measured(name, call, again));
    },
  };
}

function oneServer(client: Redis): Nodes {
  const nowhere = () => "";
  return {
    isCluster: false,
    clusters: 0,
    slotOf: () => 0,
    nodeAt: nowhere,
    nodeOf: nowhere,
    serverAt: () => client,
  };
}

function define(client: RedisClient, { name, lua, inBytes }: Script): Command {
  client.defineCommand(name, { lua });
  const method = inBytes ? `${name}Buffer` : name;
  const defined = (client as unknown as Readonly<Record<string, Command>>)[method] as Command;
  return defined.bind(client);
}

type Measured = <T>(
  name: string,
  call: (client: RedisClient) => Promise<T>,
  again: (error: unknown) => Promise<T>,
) => Promise<T>;

/** A cluster has none: its nodes fail one by one. */
function createCircuitBreaker(client: RedisClient) {
  let silent = false;
  const untilAnswered = async (): Promise<void> => {
    while (silent && client.status !== "end") {
      silent = await client.ping().then(
        () => false,
        // A server that refuses the ping answers.
        (error: Error) => error.name !== "ReplyError",
      );
      if (silent) await pause(PING_MS);
    }
  };
  return {
    /** @throws AppError `unavailable` after a timeout, until a ping is answered */
    check(): void {
      if (silent) throw new AppError("unavailable", "Redis: does not answer");
    },
    note(error: unknown): void {
      if (silent || client.isCluster || (error as Error).message !== "Command timed out") return;
      silent = true;
      void untilAnswered();
    },
  };
}

/** A script is called for the keys at `indexes`. In a cluster `route` holds one of them, which the script names as its key. */
type Call<T> = (route: readonly string[], indexes: readonly number[]) => Promise<T>;

export interface Answer<T> {
  readonly indexes: readonly number[];
  readonly reply: T;
}

/** The node refuses a key that is in none of its slots, or that has just left one of them. */
const ELSEWHERE = /\bnon local key\b/;
/** The server lets a script use keys of one slot only. */
const ONE_SLOT_ONLY = /do not hash to the same slot|undeclared key/;
const SINGLY_AT_ONCE = 64;

const byKey = (keys: readonly string[], indexes: readonly number[]): number[][] => [
  ...grouped(indexes, (index) => keys[index] as string).values(),
];

const first = (keys: readonly string[], indexes: readonly number[]): string => keys[indexes[0] as number] as string;

/**
 * Calls scripts for keys of any slots: in a cluster one call for the keys of a node. The call names the first key, by
 * which the client chooses the node. The script may use all others that the node holds: a script without a shebang has the
 * flag `allow-cross-slot-keys`. If a slot moves or has moved, the node refuses the call in its midst, and each key gets
 * a call of its own, which the client can follow. So scripts may run twice for a key.
 */
export function createNodeCalls({ isCluster, nodeOf }: Pick<Nodes, "isCluster" | "nodeOf">, log: Logger) {
  let oneSlotOnly = false;
  const partsOf = (keys: readonly string[]): (readonly number[])[] => {
    const indexes = [...keys.keys()];
    if (!isCluster) return [indexes];
    if (oneSlotOnly) return byKey(keys, indexes);
    return [...grouped(indexes, (index) => nodeOf(keys[index] as string)).values()];
  };
  /** Resolves to undefined if the keys must be called for singly. */
  const unlessElsewhere = async <T>(call: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await call();
    } catch (error) {
      const why = oneLine(error);
      if (ONE_SLOT_ONLY.test(why)) {
        if (!oneSlotOnly)
          log.warn({ error: why }, "Redis lets a script use one slot only: each key is a call of its own");
        oneSlotOnly = true;
      } else if (!ELSEWHERE.test(why)) throw error;
      return undefined;
    }
  };
  return {
    /** True once the server has refused a script that used several slots. */
    servesOneSlotOnly: (): boolean => oneSlotOnly,
    unlessElsewhere,
    /** Calls for at most `most` keys at a time. The answers have all indexes, each once. All calls have ended when it rejects. */
    async byNode<T>(keys: readonly string[], most: number, call: Call<T>): Promise<Answer<T>[]> {
      const single = async (indexes: readonly number[]): Promise<Answer<T>> => {
        const route = isCluster ? [first(keys, indexes)] : [];
        return { indexes, reply: await call(route, indexes) };
      };
      const several = async (indexes: readonly number[]): Promise<Answer<T>[]> => {
        const answer = await unlessElsewhere(() => single(indexes));
        return answer ? [answer] : mapLimited(byKey(keys, indexes), SINGLY_AT_ONCE, single);
      };
      const parts = partsOf(keys).flatMap((part) => chunked(part, most));
      const singly = oneSlotOnly ? mapLimited(parts, SINGLY_AT_ONCE, several) : allOf(parts.map(several));
      return (await singly).flat();
    },
  };
}

/** Puts replies that have an item for each key into the order of the keys. */
export function inOrder<T>(answers: readonly Answer<readonly T[]>[]): T[] {
  const ordered: T[] = [];
  for (const { indexes, reply } of answers)
    for (const [position, index] of indexes.entries()) ordered[index] = reply[position] as T;
  return ordered;
}
