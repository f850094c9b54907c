import { readFileSync } from "node:fs";
import { inSpan, SpanKind } from "../../delivery/telemetry.js";
import { AppError } from "../../kernel/errors.js";
import { type Logger, silent } from "../../kernel/logger.js";
import { histogram } from "../../kernel/meters.js";
import { pause } from "../../kernel/time.js";
import { refusalOf } from "../refusals.js";
import { type RedisClient, redisError } from "./connect.js";
import { createWrongTypes, isWrongType, removingWrongTypes, type WithRemoved } from "./wrong-types.js";

const NAMES = [
  "add-entries",
  "remove-entries",
  "trim-older",
  "read-page",
  "fill-pulls",
  "begin-rebuild",
  "stage-rebuild",
  "finish-rebuild",
  "interrupt-rebuild",
  "note-removed",
  "record-deleted",
  "read-deleted",
  "record-tombstones",
  "begin-refill",
  "finish-refill",
  "release-lease",
  "mark-edges",
  "change-edges",
  "read-recent-unfollowers",
  "note-attempt",
  "mark-chunk",
  "read-lately",
  "change-pulled",
  "change-pulls",
  "find-pulling",
  "note-drop",
  "record-server",
  "hold-lease",
  "register-streams",
  "renew-streams",
  "touch-listed",
  "take-slot",
  "take-token",
  "users-read-list",
  "users-generation",
  "users-fill-list",
  "users-change-list",
  "users-forget",
  "users-read-profile",
  "users-fill-profile",
  "remove-wrong-types",
] as const;
export type ScriptName = (typeof NAMES)[number];

const SOURCES = new Map(
  NAMES.map((name) => [name, readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), "utf8")] as const),
);

const PING_MS = 250;

type Argument = string | number | Buffer;
type Reply = unknown;

const commandTime = histogram(
  "timeline_redis_command_seconds",
  "Time from sending a command to Redis to its reply, in seconds",
  [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5],
);

/** Writes to many timelines share one span (see fenced.ts); reads have one each (see page-reader.redis.ts). */
const SPANS: ReadonlySet<string> = new Set(["begin-rebuild", "stage-rebuild", "finish-rebuild", "zscore", "zmscore"]);
const SPAN = { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } } as const;

export interface Scripts {
  readonly client: RedisClient;
  readonly isCluster: boolean;
  run(name: ScriptName, keys: readonly string[], args: readonly Argument[]): Promise<Reply>;
  /** Texts of the reply are buffers. */
  runBytes(name: ScriptName, keys: readonly string[], args: readonly Argument[]): Promise<Reply>;
  command<T>(name: string, call: (client: RedisClient) => Promise<T>): Promise<T>;
}

type CommandName = ScriptName | `${ScriptName}!`;
type Commands = Record<CommandName | `${CommandName}Buffer`, (...args: unknown[]) => Promise<Reply>>;

// defineCommand adds these.
declare module "ioredis" {
  interface RedisCommander extends Commands {}
}

/**
 * The client sends a script's hash, and its text where the server does not know it. A script or a command that meets a
 * key of a wrong type runs again: all of them may be repeated.
 */
export function createScripts(client: RedisClient, log: Logger = silent): Scripts {
  const remover = SOURCES.get("remove-wrong-types") as string;
  for (const [name, lua] of SOURCES) {
    client.defineCommand(name, { lua });
    client.defineCommand(`${name}!`, { lua: removingWrongTypes(remover, lua) });
  }
  const breaker = createCircuitBreaker(client);
  const wrongTypes = createWrongTypes(client, log);
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
  const traced: Measured = (name, ...calls) =>
    SPANS.has(name) ? inSpan(`redis ${name}`, SPAN, () => measured(name, ...calls)) : measured(name, ...calls);
  const run = (name: ScriptName, form: "" | "Buffer", args: readonly unknown[]): Promise<Reply> =>
    traced(
      name,
      () => client[`${name}${form}`](...args),
      async () => wrongTypes.resultOf((await client[`${name}!${form}`](...args)) as WithRemoved),
    );
  return {
    client,
    isCluster: client.isCluster,
    run: (name, keys, args) => run(name, "", [keys.length, ...keys, ...args]),
    runBytes: (name, keys, args) => run(name, "Buffer", [keys.length, ...keys, ...args]),
    command: (name, call) => traced(name, call, (error) => wrongTypes.callAgain(call, error)),
  };
}

type Measured = <T>(
  name: string,
  call: (client: RedisClient) => Promise<T>,
  again: (error: unknown) => Promise<T>,
) => Promise<T>;

interface CircuitBreaker {
  /** @throws AppError `unavailable` after a timeout, until a ping is answered */
  check(): void;
  note(error: unknown): void;
}

/** A cluster has none: its nodes fail one by one. */
function createCircuitBreaker(client: RedisClient): CircuitBreaker {
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
    check() {
      if (silent) throw new AppError("unavailable", "Redis: does not answer");
    },
    note(error) {
      if (silent || client.isCluster || (error as Error).message !== "Command timed out") return;
      silent = true;
      void untilAnswered();
    },
  };
}
