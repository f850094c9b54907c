import type { NatsConnection } from "nats";
import { pause, sharedNow } from "../../kernel/time.js";
import type { Publish } from "../../platform/nats/publish.js";
import type { Upstreams } from "../../upstreams/upstreams.grpc.js";
import { createOperations, type DeadLetterOperations } from "./operations.js";
import { createDeadLetterStore, createLogAge } from "./store.nats.js";

export { createDeadLetterApi, type DeadLetterApi } from "./api.js";
export { createMaxDeliveriesHandler } from "./max-deliveries.nats.js";
export type { DeadLetterOperations, Removal } from "./operations.js";
export * from "./present.js";
export { DEFAULT_RATE, type Report } from "./redrive.js";
export { FILTERS, type Filters, RATE, SEQ, type Selection, selectionFault } from "./selection.js";
export { startDeadLetterService } from "./service.nats.js";
export { deadLetterAsJson, type StoredDeadLetter } from "./stored-dead-letter.js";

const DROPS_A_PAGE = 200;
const FOLLOWING_A_PAGE = 1_000;

/** `upstreams` decide about dead letters older than the log; undefined if their addresses are not configured. */
export function createDeadLetters(deps: {
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly upstreams: (() => Upstreams) | undefined;
}): DeadLetterOperations {
  const { nats, publish, upstreams } = deps;
  return createOperations({
    store: createDeadLetterStore(nats),
    publish,
    logAgeMs: createLogAge(nats),
    upstreams: upstreams && {
      drops: (author, below) => upstreams().dropsByUser({ author, below, limit: DROPS_A_PAGE }),
      following: (user, token) => upstreams().following({ user, token, size: FOLLOWING_A_PAGE }),
    },
    now: sharedNow,
    pause,
  });
}
