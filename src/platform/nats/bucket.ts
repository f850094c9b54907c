import { randomUUID } from "node:crypto";
import { type NatsConnection, NatsError } from "nats";
import { type BucketName, bucketPrefix, streamOfBucket } from "../../contracts/subjects.js";
import { AppError } from "../../kernel/errors.js";
import { askNats, managerOf, unlessAbsent } from "./ask.js";
import type { Publish } from "./publish.js";
import { logEntries } from "./read-log.js";

export type Bucket = ReturnType<typeof createBucket>;

/** Both codes are "wrong last sequence" in nats-server (server/errors.json), with and without the sequence. */
const WRONG_REVISION = new Set([10071, 10164]);

/** Opens a bucket of JSON values. Every method rejects with AppError `unavailable` while NATS is away. */
export function createBucket(nats: NatsConnection, publish: Publish, bucket: BucketName) {
  const [prefix, stream] = [bucketPrefix(bucket), streamOfBucket(bucket)];
  const write = async (key: string, value: unknown, headers: Readonly<Record<string, string>> = {}) => {
    const body = Buffer.from(JSON.stringify(value));
    try {
      await publish({ subject: prefix + key, body, id: randomUUID(), headers });
      return true;
    } catch (error) {
      const cause = error instanceof AppError ? error.cause : undefined;
      if (cause instanceof NatsError && WRONG_REVISION.has(cause.api_error?.err_code ?? 0)) return false;
      throw error;
    }
  };
  const replace = (key: string, value: unknown, revision: number): Promise<boolean> =>
    write(key, value, { "Nats-Expected-Last-Subject-Sequence": String(revision) });
  return {
    /** Resolves to false if the key has a value. */
    create: (key: string, value: unknown) => replace(key, value, 0),
    /** Resolves to false if the value has another revision by now. Revision 0 stands for no value. */
    replace,
    put: async (key: string, value: unknown) => void (await write(key, value)),
    /**
     * Reads a value from the stream's leader: a replica may not have it yet. `time` is when it was stored, in ms since
     * the epoch.
     */
    get: (key: string) =>
      askNats(`a key of ${bucket}`, async () => {
        const { streams } = await managerOf(nats);
        const query = { last_by_subj: prefix + key };
        const message = await unlessAbsent(streams.getMessage(stream, query), "message");
        return message && { value: message.json<unknown>(), revision: message.seq, time: message.time.getTime() };
      }),
    /** Resolves to the keys that match a filter with wildcards, in no order; undefined while there is no bucket. */
    keys: (filter: string) =>
      askNats(`the keys of ${bucket}`, async () => {
        const { streams } = await managerOf(nats);
        const info = await unlessAbsent(streams.info(stream, { subjects_filter: prefix + filter }), "stream");
        if (info === undefined) return undefined;
        const { state } = info;
        return Object.keys(state.subjects ?? {}).map((subject) => subject.slice(prefix.length));
      }),
    async *entries(filter: string): AsyncGenerator<{ readonly key: string; readonly body: Uint8Array }> {
      for await (const { subject, body } of logEntries(nats, { stream, subject: prefix + filter }))
        yield { key: subject.slice(prefix.length), body };
    },
    /** Removes the keys that match a filter with wildcards, without markers. */
    purge: (filter: string) =>
      askNats(`removing keys of ${bucket}`, async () => {
        const { streams } = await managerOf(nats);
        await streams.purge(stream, { filter: prefix + filter });
      }),
  };
}
