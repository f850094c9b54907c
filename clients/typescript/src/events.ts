import type { TimelineError } from "./errors.js";
import type { EventStreams, StreamEvents } from "./gen/schemas.js";

/** A list of the user is named by its id. */
export type TimelineName = "home" | "local" | "global" | `list:${string}`;

export type StreamName = TimelineName | "notifications";

/** An event of a stream, with the id to resume after it. */
export type StreamEvent<Name extends keyof StreamEvents = keyof StreamEvents> = {
  [Event in Name]: { readonly event: Event; readonly data: StreamEvents[Event]; readonly id: string };
}[Name];

/** Names the events of each stream. */
export type EventsOf<Name extends StreamName> = Name extends keyof EventStreams
  ? EventStreams[Name]
  : Name extends "notifications"
    ? "notification" | "notifications_read" | "reset"
    : EventStreams["list/{id}"];

/** Events of the stream itself. */
export interface StreamStates {
  /** The stream is connected; events follow. */
  readonly open: Record<never, never>;
  /** The connection is lost or refused; the next one is opened after `delayMs`. */
  readonly down: { readonly error: TimelineError; readonly delayMs: number };
  /** The stream has ended: it was closed, or `error` says why the server would refuse every other connection. */
  readonly closed: { readonly error: TimelineError | undefined };
}

/** Maps each name to the message that its listeners get. */
export type StreamMessages = { [Name in keyof StreamEvents]: StreamEvent<Name> } & StreamStates;

export type Listener<Name extends keyof StreamMessages> = (message: StreamMessages[Name]) => void;

/** Calls the listeners of a name, in the order in which they were added. */
export class Listeners {
  readonly #byName = new Map<string, Set<(message: never) => void>>();

  add(name: string, listener: (message: never) => void): void {
    this.#byName.set(name, (this.#byName.get(name) ?? new Set()).add(listener));
  }

  remove(name: string, listener: (message: never) => void): void {
    this.#byName.get(name)?.delete(listener);
  }

  call(name: string, message: unknown): void {
    for (const listener of [...(this.#byName.get(name) ?? [])]) {
      try {
        listener(message as never);
      } catch (error) {
        // As listeners of an EventTarget: the error is the program's, and the others are called.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
