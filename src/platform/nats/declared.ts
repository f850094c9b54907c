import { readdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { ConsumerConfig, StreamConfig } from "nats";
import { notifyParts } from "../../contracts/notify-parts.js";
import { STREAM } from "../../contracts/subjects.js";

export interface Topology {
  readonly streams: readonly StreamConfig[];
  readonly consumers: readonly { readonly stream: string; readonly config: ConsumerConfig }[];
}

const DECLARED = new URL("../../../nats/", import.meta.url);

async function readAll<T>(folder: string): Promise<{ name: string; value: T }[]> {
  const directory = fileURLToPath(new URL(folder, DECLARED));
  const files = (await readdir(directory)).filter((file) => file.endsWith(".json")).sort();
  return Promise.all(
    files.map(async (file) => ({
      name: file.slice(0, -".json".length),
      value: JSON.parse(await readFile(`${directory}/${file}`, "utf8")) as T,
    })),
  );
}

/** @param parts number of streams that share the notifications */
export async function readTopology(parts = 1): Promise<Topology> {
  const [streams, consumers] = await Promise.all([
    readAll<StreamConfig>("streams/"),
    readAll<ConsumerConfig>("consumers/"),
  ]);
  const declared = consumers.map(({ name, value }) => ({ stream: name.slice(0, name.indexOf(".")), config: value }));
  const all = streams.flatMap(({ value }) => (value.name === STREAM.notify ? partsOf(value, parts) : value));
  return { streams: all.map((stream) => withAdvisories(stream, declared)), consumers: declared };
}

/** All parts are declared by the file of NOTIFY. */
export const fileOf = (stream: string): string => `nats/streams/${stream.replace(/^NOTIFY-\d+$/, STREAM.notify)}.json`;

const partsOf = (notify: StreamConfig, count: number): StreamConfig[] =>
  notifyParts(count).map(({ stream: name, subject }) => ({
    ...notify,
    name,
    subjects: [subject("*")],
    republish: { src: subject(">"), dest: notify.republish?.dest ?? "" },
  }));

/** Advisory of the server about a message that reached a consumer's max_deliver. */
const MAX_DELIVERIES = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES";

/** Derived from the consumers, so that none can be forgotten. */
function withAdvisories(stream: StreamConfig, consumers: Topology["consumers"]): StreamConfig {
  if (stream.name !== STREAM.advisories) return stream;
  const consumed = [...new Set(consumers.map((consumer) => consumer.stream))].sort();
  return { ...stream, subjects: consumed.map((name) => `${MAX_DELIVERIES}.${name}.*`) };
}
