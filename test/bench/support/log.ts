import { DeliverPolicy, headers, type NatsConnection } from "nats";
import type { Streams } from "../../support/streams.js";
import { check } from "./result.js";

const IN_FLIGHT = 4_096;

/** Its size has no limit: on a small disk the streams of the service have reserved all the room. */
export async function addStreamLike(
  { manager }: Streams,
  like: string,
  own: { readonly name: string; readonly subjects: string[] },
): Promise<void> {
  const { config } = await manager.streams.info(like);
  await manager.streams.add({ ...config, ...own, max_bytes: -1 });
}

/** Publishes messages with ids into a stream like `like`, counts the PubAcks, and yields the rate a second. */
export async function barePublish(
  streams: Streams,
  { like, count, bodyOf }: { readonly like: string; readonly count: number; readonly bodyOf: (n: number) => string },
): Promise<number> {
  await addStreamLike(streams, like, { name: "BARE", subjects: ["bare"] });
  const seconds = await publishCounting(streams.connection, count, bodyOf);
  const { messages } = (await streams.manager.streams.info("BARE")).state;
  check(messages === count, `${messages} of ${count} messages were published bare`);
  await streams.manager.streams.delete("BARE");
  return count / seconds;
}

async function publishCounting(
  connection: NatsConnection,
  count: number,
  bodyOf: (n: number) => string,
): Promise<number> {
  const inbox = `_INBOX.${connection.info?.client_id}.bare`;
  const started = performance.now();
  await new Promise<void>((resolve, reject) => {
    let [sent, acked] = [0, 0];
    const send = (): void => {
      for (; sent < count && sent - acked < IN_FLIGHT; sent++) {
        const header = headers();
        header.set("Nats-Msg-Id", `bare-${sent}`);
        connection.publish("bare", bodyOf(sent), { reply: inbox, headers: header });
      }
    };
    const subscription = connection.subscribe(inbox, {
      callback: (error, message) => {
        if (error !== null || message.string().includes('"error"')) return reject(error ?? new Error(message.string()));
        acked++;
        if (acked === count) {
          subscription.unsubscribe();
          resolve();
        } else if (sent - acked < IN_FLIGHT / 2) send();
      },
    });
    send();
  });
  return (performance.now() - started) / 1_000;
}

/** The bodies of a stream in their order. */
export async function bodiesOf(streams: Streams, stream: string): Promise<string[]> {
  const count = await streams.count(stream);
  if (count === 0) return [];
  const consumer = await streams.connection
    .jetstream()
    .consumers.get(stream, { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: 1 });
  const bodies: string[] = [];
  const messages = await consumer.consume({ max_messages: 5_000 });
  for await (const message of messages) {
    bodies.push(message.string());
    if (bodies.length === count) break;
  }
  return bodies;
}
