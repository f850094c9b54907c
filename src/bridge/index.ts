import type { Redis } from "ioredis";
import type { NatsConnection } from "nats";
import type { StoreDeadLetter } from "../delivery/dead-letter.js";
import type { Logger } from "../kernel/logger.js";
import { countdown } from "../kernel/time.js";
import type { PublishAll } from "../platform/nats/publish.js";
import { refusalOf } from "../platform/nats/publish-errors.js";
import { createForward, type RequestReconcile, startIntake } from "./bridge.js";
import { createChannels } from "./channels.redis.js";
import { createHeldDeadLetters } from "./held-dead-letters.js";
import { observeBridge } from "./observe.js";

interface BridgeHandles {
  /** The subscriber has a connection of its own, as a subscribed one takes no other commands. */
  readonly subscriber: Redis;
  readonly nats: Pick<NatsConnection, "info">;
  readonly publishAll: PublishAll;
  readonly storeDeadLetter: StoreDeadLetter;
  readonly requestReconcile: RequestReconcile;
  readonly version: string;
  readonly exportsTraces: boolean;
  readonly log: Logger;
}

export interface Bridge {
  notReady(): string | undefined;
  close(graceMs: number): Promise<void>;
}

/** Starts forwarding events from Redis Pub/Sub into the log; resolves once every channel is subscribed. */
export async function startBridge(handles: BridgeHandles): Promise<Bridge> {
  const { subscriber, nats, publishAll, storeDeadLetter, requestReconcile, version, exportsTraces, log } = handles;
  const isRefusal = (error: unknown): boolean => refusalOf(error) !== undefined;
  const deadLetters = createHeldDeadLetters({ store: storeDeadLetter, isRefusal, log });
  const observe = observeBridge;
  const admit = { admitAll: publishAll, server: nats, deadLetters, requestReconcile, version, exportsTraces, log };
  observe.started();
  const intake = await startIntake({
    channels: createChannels(subscriber, log),
    forward: createForward({ ...admit, observe: observe.forwarded }),
    ...{ requestReconcile, log, observe },
  });
  return {
    notReady: () => (intake.healthy() ? deadLetters.notReady() : "bridge: Redis Pub/Sub is not subscribed"),
    close: async (graceMs) => {
      const left = countdown(graceMs);
      await intake.close(graceMs);
      await deadLetters.close(left());
    },
  };
}
