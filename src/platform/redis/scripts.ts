import { readFileSync } from "node:fs";
import { inSpan, SpanKind } from "../../delivery/telemetry.js";
import { AppError } from "../../kernel/errors.js";
import { type Logger, silent } from "../../kernel/logger.js";
import { histogram } from "../../kernel/meters.js";
import { pause } from "../../kernel/time.js";
import { refusalOf } from "../refusals.js";
import { type RedisClient, redisError } from "./connect.js";
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

type Command = (...args: readonly unknown[]) => Promise<Reply>;

interface Commands {
  readonly usual: Command;
  readonly removing: Command;
}

/**
 * The client sends a script's hash, and its text where the server does not know it. A script or a command that meets a
 * key of a wrong type runs again: all of them may be repeated. A script is registered when it is first called.
 */
export function createScripts(client: RedisClient, log: Logger = silent) {
  const known = new Map<Script, Commands>();
  const commandsOf = (of: Script): Commands => {
    const held = known.get(of);
    if (held) return held;
    const removing = removingWrongTypes(REMOVE_WRONG_TYPES.lua, of.lua);
    const commands = {
      usual: define(client, of),
      removing: define(client, { ...of, name: `${of.name}!`, lua: removing }),
    };
    known.set(of, commands);
    return commands;
  };
  const breaker = createCircuitBreaker(client);
  const wrongTypes = createWrongTypes((args) => commandsOf(REMOVE_WRONG_TYPES).usual(...args), log);
  const fail = (error: unknown): never => {
    breaker.note(error);
    // The client itself says only that it is not connected.
    throw refusalOf(client) ?? redisError(error);
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
    const again = async () => wrongTypes.resultOf((await removing(...args)) as WithRemoved);
    return inSpanIf(spanned, name, () => measured(name, () => usual(...args), again));
  };
  return {
    client,
    isCluster: client.isCluster,
    run: (of: Script, keys: readonly string[], args: readonly Argument[]): Promise<Reply> =>
      run(of, commandsOf(of), [keys.length, ...keys, ...args]),
    command: <T>(name: string, call: (client: RedisClient) => Promise<T>): Promise<T> => {
      const again = (error: unknown) => wrongTypes.callAgain(() => call(client), error);
      return inSpanIf(SPANNED.has(name), name, () => measured(name, call, again));
    },
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
