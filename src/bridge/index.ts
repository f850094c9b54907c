import type { Redis } from "ioredis";
import type { NatsConnection } from "nats";
import type { StoreDeadLetter } from "../delivery/dead-letter.js";
import { countdown } from "../kernel/time.js";
import type { PublishAll } from "../platform/nats/publish.js";
import { publishRefusal } from "../platform/nats/publish-errors.js";
import { createForward, type ForwardDeps, startIntake } from "./bridge.js";
import { createChannels } from "./channels.redis.js";
import { createHeldDeadLetters } from "./held-dead-letters.js";
import type { Neighbours } from "./neighbours.redis.js";
import { observeBridge } from "./observe.js";

export { watchNeighbours } from "./neighbours.redis.js";

interface BridgeHandles
  extends Pick<ForwardDeps, "requestReconcile" | "namesErased" | "version" | "exportsTraces" | "log"> {
  /** The subscriber has a connection of its own, as a subscribed one takes no other commands. */
  readonly subscriber: Redis;
  readonly nats: Pick<NatsConnection, "info">;
  readonly publishAll: PublishAll;
  readonly storeDeadLetter: StoreDeadLetter;
  readonly channelPrefix: string;
  readonly neighbours: Pick<Neighbours, "fault" | "close">;
}

export interface Bridge {
  notReady(): string | undefined;
  close(graceMs: number): Promise<void>;
}

/** Starts forwarding events from Redis Pub/Sub into the log; resolves once every channel is subscribed. */
export async function startBridge(handles: BridgeHandles): Promise<Bridge> {
  const { subscriber, nats, publishAll, storeDeadLetter, channelPrefix, neighbours, ...deps } = handles;
  const isRefusal = (error: unknown): boolean => publishRefusal(error) !== undefined;
  const deadLetters = createHeldDeadLetters({ store: storeDeadLetter, isRefusal, log: deps.log });
  const observe = observeBridge;
  observe.started();
  const intake = await startIntake({
    ...deps,
    channels: createChannels(subscriber, deps.log, channelPrefix),
    forward: createForward({ ...deps, admitAll: publishAll, server: nats, deadLetters, observe: observe.forwarded }),
    observe,
  });
  return {
    notReady: () => {
      if (!intake.healthy()) return "bridge: Redis Pub/Sub is not subscribed";
      const neighbour = neighbours.fault();
      return neighbour === undefined ? deadLetters.notReady() : `bridge: ${neighbour}`;
    },
    close: async (graceMs) => {
      const remainingMs = countdown(graceMs);
      await neighbours.close();
      await intake.close(graceMs);
      await deadLetters.close(remainingMs());
    },
  };
}
