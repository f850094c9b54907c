import { createParser, type EventSourceMessage } from "eventsource-parser";
import { eventually } from "./checks.js";

/** A person's open event stream. */
export interface Stream {
  readonly events: readonly EventSourceMessage[];
  /** The id to resume from. */
  lastId(): string;
  /** Resolves to the event about a drop. */
  waitFor(event: string, drop: string): Promise<EventSourceMessage>;
  close(): void;
}

/** Opens the stream of whoever the token is for; `lastId` resumes an earlier one. */
export async function openStream(url: string, token: string, lastId?: string): Promise<Stream> {
  const abort = new AbortController();
  const response = await fetch(url, {
    signal: abort.signal,
    headers: { authorization: `Bearer ${token}`, ...(lastId === undefined ? {} : { "last-event-id": lastId }) },
  });
  if (!response.ok || !response.body) throw new Error(`the stream answers ${response.status}`);
  const events: EventSourceMessage[] = [];
  let position = lastId ?? "";
  const parser = createParser({ onEvent: (event) => events.push(event) });
  const read = async (body: AsyncIterable<Uint8Array>): Promise<void> => {
    const decoder = new TextDecoder();
    for await (const bytes of body) {
      const text = decoder.decode(bytes, { stream: true });
      parser.feed(text);
      // Heartbeats carry an id and no event, which a parser of events does not tell.
      position = [...text.matchAll(/^id: ?(\S+)$/gm)].at(-1)?.[1] ?? position;
    }
  };
  void read(response.body).catch(() => undefined);
  return {
    events,
    lastId: () => position,
    waitFor: (event, drop) =>
      eventually(`${event} of ${drop} on the stream`, 5_000, async () =>
        events.find((one) => one.event === event && one.data.includes(JSON.stringify(drop))),
      ),
    close: () => abort.abort(),
  };
}
