import { EVENT_NAMES, type EventName } from "../contracts/events.js";
import type { Logger } from "../kernel/logger.js";
import { pause } from "../kernel/time.js";
import type { RequestReconcile } from "./forward.js";

export interface Channels {
  /**
   * Resolves once every channel is subscribed.
   *
   * @param interrupted called after each interruption, with when the link was last known to work (ms since the epoch)
   */
  subscribe(
    names: readonly EventName[],
    take: (channel: EventName, payload: Uint8Array) => void,
    interrupted: (since: number) => void,
  ): Promise<void>;
  /** Stops or goes on reading; false where this source cannot be held back. */
  hold(on: boolean): boolean;
  healthy(): boolean;
  unsubscribe(): Promise<void>;
}

interface IntakeDeps {
  readonly channels: Channels;
  readonly forward: (channel: EventName, payload: Uint8Array) => Promise<void>;
  readonly requestReconcile: RequestReconcile;
  readonly log: Logger;
  readonly observe: { inFlight(change: number): void; refused(channel: EventName): void };
}

const MAX_IN_FLIGHT = 8_192;
const MAX_IN_FLIGHT_BYTES = 64 * 1024 * 1024;

export interface Intake {
  healthy(): boolean;
  close(graceMs: number): Promise<void>;
}

/**
 * Forwards every payload of the channels. At a bound of payloads in flight the connection is not read on: Redis holds
 * what follows in its own buffer, and closes the connection when that is full.
 */
export async function startIntake({ channels, forward, requestReconcile, log, observe }: IntakeDeps): Promise<Intake> {
  const inFlight = new Set<Promise<void>>();
  let bytes = 0;
  let held = false;
  const full = (): boolean => inFlight.size >= MAX_IN_FLIGHT || bytes >= MAX_IN_FLIGHT_BYTES;
  const take = (channel: EventName, payload: Uint8Array): void => {
    if (full() && !held) held = channels.hold(true);
    // A source that cannot be held back hands on what it has read; past twice the bound that is lost, and counted.
    if (inFlight.size >= 2 * MAX_IN_FLIGHT || bytes >= 2 * MAX_IN_FLIGHT_BYTES) {
      requestReconcile(Date.now(), "overflow");
      return observe.refused(channel);
    }
    bytes += payload.byteLength;
    observe.inFlight(1);
    const forwarding = forward(channel, payload).finally(() => {
      inFlight.delete(forwarding);
      bytes -= payload.byteLength;
      observe.inFlight(-1);
      if (held && !full()) held = !channels.hold(false);
    });
    inFlight.add(forwarding);
  };
  await channels.subscribe(EVENT_NAMES, take, (since) => requestReconcile(since, "reconnect"));
  log.info({ channels: EVENT_NAMES }, "bridging Redis Pub/Sub into JetStream");
  return {
    healthy: () => channels.healthy(),
    close: async (graceMs) => {
      await channels.unsubscribe();
      await Promise.race([Promise.all(inFlight), pause(graceMs)]);
      if (inFlight.size > 0) log.error({ count: inFlight.size }, "events were not admitted before the end");
    },
  };
}
