export type { CallOptions } from "./calls.js";
export { type AnalyzeOptions, TimelineClient } from "./client.js";
export { TimelineError } from "./errors.js";
export type {
  EventsOf,
  Listener,
  StreamEvent,
  StreamMessages,
  StreamName,
  StreamStates,
  TimelineName,
} from "./events.js";
export type * from "./gen/schemas.js";
export type { PositionStorage } from "./position.js";
export type { ClientOptions } from "./send.js";
export { type StreamOptions, TimelineStream } from "./stream.js";
