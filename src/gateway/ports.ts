import type { Headers } from "../delivery/handler.js";
import type { Position } from "./position.js";

/** A notification as a stream sends it; `block` is missing where the message cannot be understood. */
export interface Note {
  readonly seq: number;
  /** Sequence of the user's notification before it; only a live one knows. */
  readonly previous?: number | undefined;
  readonly storedAt?: number | undefined;
  readonly headers: Headers;
  readonly content?: Content | undefined;
}

/** What a notification says. */
export interface Content {
  readonly event: string;
  /** JSON on a single line. */
  readonly data: string;
  /** Two notifications with the same key are one thing told twice; undefined: always a new thing. */
  readonly key?: string | undefined;
  readonly createdAt?: number | undefined;
}

/** What the stream of notifications holds as a whole. */
export interface FeedState {
  /** Which creation of the stream this is about. */
  readonly incarnation: string;
  readonly firstSeq: number;
  readonly lastSeq: number;
  /** How many notifications of one user are kept at most. */
  readonly perSubject: number;
}

/** Where notifications come from. Everything rejects with AppError `unavailable`. */
export interface Feed {
  /** Hears a user's notifications from now on; returns how to stop. */
  follow(user: string, take: (note: Note) => void): () => void;
  /** Resolves when every `follow` before the call is in force. */
  flushed(): Promise<void>;
  /** As it was at some time after the call. */
  state(): Promise<FeedState>;
  /** Which incarnation the live notifications are of; undefined while the stream may have been replaced. */
  current(): string | undefined;
  /** The last sequence of the user, by the leader; 0: none. */
  lastOf(user: string): Promise<number>;
  /** The oldest sequence of the user still held, by the leader; undefined: none. */
  oldestOf(user: string): Promise<number | undefined>;
  /** Hands out the user's notifications after `after`, oldest first, as long as `take` says true. */
  read(user: string, after: number, take: (note: Note) => boolean): Promise<void>;
  connected(): boolean;
  close(): void;
}

/** One open stream, as it is registered. */
export interface Connection {
  readonly id: string;
  readonly user: string;
  /** In ms since the epoch. */
  readonly createdAt: number;
}

/** What is known of a user before registering. */
interface Listing {
  /** When a gateway last had a stream of the user, in ms since the epoch. */
  readonly lastSeen?: number | undefined;
  /** The lowest position from which the user was listed without a break. */
  readonly goodFrom?: Position | undefined;
}

/** Where registrations are kept. Everything rejects with AppError. */
export interface RegistryStore {
  listing(user: string): Promise<Listing>;
  setGoodFrom(user: string, position: Position): Promise<void>;
  add(connection: Connection): Promise<void>;
  /** Prolongs registrations; resolves to the ids of those found gone. */
  renew(connections: readonly Connection[]): Promise<ReadonlySet<string>>;
  remove(connection: Connection): Promise<void>;
  /** Takes out what pods left that did not renew for long; resolves to how many. */
  sweep(): Promise<number>;
}
