import { randomUUID } from "node:crypto";
import { type NatsConnection, NatsError } from "nats";
import { ANALYSES_PREFIX, STREAM } from "../contracts/subjects.js";
import { AppError } from "../kernel/errors.js";
import { askNats, managerOf, unlessAbsent } from "../platform/nats/ask.js";
import type { Publish } from "../platform/nats/publish.js";

interface Entry {
  readonly value: unknown;
  readonly revision: number;
}

/**
 * The key-value bucket is ANALYSES; its values are JSON. Everything rejects with AppError `unavailable` while NATS is
 * away.
 */
export interface Bucket {
  /** Resolves to false where the key has a value. */
  create(key: string, value: unknown): Promise<boolean>;
  /** Resolves to false where the value is of another revision by now; revision 0 stands for no value. */
  replace(key: string, value: unknown, revision: number): Promise<boolean>;
  put(key: string, value: unknown): Promise<void>;
  get(key: string): Promise<Entry | undefined>;
  /** Resolves to the keys that match a filter with wildcards, in no order. */
  keys(filter: string): Promise<string[]>;
}

/** nats-server calls both codes "wrong last sequence" (server/errors.json), with and without the sequence. */
const WRONG_REVISION = new Set([10071, 10164]);

export function createBucket(nats: NatsConnection, publish: Publish): Bucket {
  const write = async (
    key: string,
    value: unknown,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<boolean> => {
    const message = {
      subject: ANALYSES_PREFIX + key,
      body: Buffer.from(JSON.stringify(value)),
      id: randomUUID(),
      headers,
    };
    try {
      await publish(message);
      return true;
    } catch (error) {
      const cause = error instanceof AppError ? error.cause : undefined;
      if (cause instanceof NatsError && WRONG_REVISION.has(cause.api_error?.err_code ?? 0)) return false;
      throw error;
    }
  };
  const ifRevision = (revision: number) => ({ "Nats-Expected-Last-Subject-Sequence": String(revision) });
  return {
    create: (key, value) => write(key, value, ifRevision(0)),
    replace: (key, value, revision) => write(key, value, ifRevision(revision)),
    put: async (key, value) => void (await write(key, value)),
    // The stream's leader answers: a replica may not have the value yet.
    get: (key) =>
      askNats("a key of ANALYSES", async () => {
        const { streams } = await managerOf(nats);
        const query = { last_by_subj: ANALYSES_PREFIX + key };
        const found = await unlessAbsent(streams.getMessage(STREAM.analyses, query), "message");
        return found && { value: found.json<unknown>(), revision: found.seq };
      }),
    keys: (filter) =>
      askNats("the keys of ANALYSES", async () => {
        const { streams } = await managerOf(nats);
        const { state } = await streams.info(STREAM.analyses, { subjects_filter: ANALYSES_PREFIX + filter });
        return Object.keys(state.subjects ?? {}).map((subject) => subject.slice(ANALYSES_PREFIX.length));
      }),
  };
}
