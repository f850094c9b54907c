export type { CallOptions } from "./calls.js";
export { type AnalyzeOptions, TimelineClient, type TimelineName } from "./client.js";
export { TimelineError } from "./errors.js";
export type { Listener, StreamEvent, StreamMessages, StreamStates } from "./events.js";
export type * from "./gen/schemas.js";
export type { PositionStorage } from "./position.js";
export type { ClientOptions } from "./send.js";
export { type StreamOptions, TimelineStream } from "./stream.js";
