import type { Redis } from "ioredis";
import type { NatsConnection } from "nats";
import type { StoreDeadLetter } from "../delivery/dead-letter.js";
import { countdown } from "../kernel/time.js";
import type { PublishAll } from "../platform/nats/publish.js";
import { refusalOf } from "../platform/nats/publish-errors.js";
import { createForward, type ForwardDeps, startIntake } from "./bridge.js";
import { createChannels } from "./channels.redis.js";
import { createHeldDeadLetters } from "./held-dead-letters.js";
import { observeBridge } from "./observe.js";

interface BridgeHandles
  extends Pick<ForwardDeps, "requestReconcile" | "namesErased" | "version" | "exportsTraces" | "log"> {
  /** The subscriber has a connection of its own, as a subscribed one takes no other commands. */
  readonly subscriber: Redis;
  readonly nats: Pick<NatsConnection, "info">;
  readonly publishAll: PublishAll;
  readonly storeDeadLetter: StoreDeadLetter;
}

export interface Bridge {
  notReady(): string | undefined;
  close(graceMs: number): Promise<void>;
}

/** Starts forwarding events from Redis Pub/Sub into the log; resolves once every channel is subscribed. */
export async function startBridge(handles: BridgeHandles): Promise<Bridge> {
  const { subscriber, nats, publishAll, storeDeadLetter, ...deps } = handles;
  const isRefusal = (error: unknown): boolean => refusalOf(error) !== undefined;
  const deadLetters = createHeldDeadLetters({ store: storeDeadLetter, isRefusal, log: deps.log });
  const observe = observeBridge;
  observe.started();
  const intake = await startIntake({
    ...deps,
    channels: createChannels(subscriber, deps.log),
    forward: createForward({ ...deps, admitAll: publishAll, server: nats, deadLetters, observe: observe.forwarded }),
    observe,
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
