import { EVENT_NAMES, type EventName } from "../contracts/events.js";
import type { Logger } from "../kernel/logger.js";
import { pause } from "../kernel/time.js";

/** Where payloads come from. */
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

/** Says that from `since` (ms since the epoch) until now events may have been lost. */
export type Suspect = (since: number, cause: "reconnect" | "gap" | "overflow") => void;

interface BridgeDeps {
  readonly channels: Channels;
  readonly forward: (channel: EventName, payload: Uint8Array) => Promise<void>;
  readonly suspect: Suspect;
  readonly log: Logger;
  readonly observe: { inFlight(change: number): void; refused(channel: EventName): void };
}

/** What may be on its way into the log at one time. */
const MAX_IN_FLIGHT = 8_192;
const MAX_IN_FLIGHT_BYTES = 64 * 1024 * 1024;

/** A running bridge. */
export interface Bridge {
  healthy(): boolean;
  close(graceMs: number): Promise<void>;
}

/**
 * Forwards every payload of the channels. What is in flight is bounded: at the
 * bound the connection is not read on, so that Redis holds what follows in its
 * own buffer for us, and cuts us off when that is full.
 */
export async function startBridge({ channels, forward, suspect, log, observe }: BridgeDeps): Promise<Bridge> {
  const inFlight = new Set<Promise<void>>();
  let bytes = 0;
  let held = false;
  const full = (): boolean => inFlight.size >= MAX_IN_FLIGHT || bytes >= MAX_IN_FLIGHT_BYTES;
  const take = (channel: EventName, payload: Uint8Array): void => {
    if (full() && !held) held = channels.hold(true);
    // A source that cannot be held back hands on what is already read; past twice the bound it is lost, and counted.
    if (inFlight.size >= 2 * MAX_IN_FLIGHT || bytes >= 2 * MAX_IN_FLIGHT_BYTES) {
      suspect(Date.now(), "overflow");
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
  await channels.subscribe(EVENT_NAMES, take, (since) => suspect(since, "reconnect"));
  log.info({ channels: EVENT_NAMES }, "bridging Redis Pub/Sub into JetStream");
  return {
    healthy: () => channels.healthy(),
    close: async (graceMs) => {
      await channels.unsubscribe();
      await Promise.race([Promise.all(inFlight), pause(graceMs)]);
      if (inFlight.size > 0)
        log.error(
          { count: inFlight.size },
          "events were still on their way into the log at the end of the grace period",
        );
    },
  };
}
