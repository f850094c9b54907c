import type { JetStreamManager, NatsConnection, StreamInfo } from "nats";
import { ALL_NOTIFY_PARTS, type NotifyPart, notifyParts } from "../../contracts/notify-parts.js";
import { NOTIFY_WINDOW_MS } from "../../contracts/times.js";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop } from "../../kernel/loop.js";
import { MINUTE, SECOND, sharedNow } from "../../kernel/time.js";
import { askNats, managerOf, unlessAbsent } from "./ask.js";

/** Every part stores subjects of it. */
const STORED = "notify.>";

interface PresentPart {
  readonly part: NotifyPart;
  readonly info: StreamInfo;
}

const LOOKING = "looking for the parts of NOTIFY";

/** One request finds the streams, whatever the number of parts is. */
async function presentStreams({ streams }: JetStreamManager): Promise<Set<string>> {
  const present = new Set<string>();
  for await (const stream of streams.names(STORED)) present.add(stream);
  return present;
}

/** Returns the parts under all numbers of parts whose streams exist. @throws AppError `unavailable` */
export const presentParts = (connection: NatsConnection): Promise<PresentPart[]> =>
  askNats(LOOKING, async () => {
    const manager = await managerOf(connection);
    const streams = await presentStreams(manager);
    const parts = ALL_NOTIFY_PARTS.filter(({ stream }) => streams.has(stream));
    const present = await Promise.all(
      parts.map(async (part) => {
        const info = await unlessAbsent(manager.streams.info(part.stream), "stream");
        return info ? [{ part, info }] : [];
      }),
    );
    return present.flat();
  });

const LOOK_MS = 5 * SECOND;

/**
 * Knows which streams store notifications, a few seconds late. It answers without a request: a resume needs only the
 * leader of the user's part.
 */
export function followPresentParts(connection: NatsConnection) {
  let known: Set<string> | undefined;
  const look = (): Promise<void> =>
    askNats(LOOKING, async () => {
      known = await presentStreams(await managerOf(connection));
    });
  const first = look().catch(() => undefined);
  const loop = startLoop({ everyMs: LOOK_MS, firstAfterMs: LOOK_MS, jitter: true, work: look });
  return {
    /** Resolves when the first look has ended. If it has failed, all parts may exist. */
    looked: (): Promise<void> => first,
    has: (stream: string): boolean => known?.has(stream) ?? true,
    /** A message of this stream was heard. */
    add: (stream: string): void => void known?.add(stream),
    // A round may wait for NATS.
    close: (): void => void loop.close(),
  };
}

/** Returns the parts under other numbers that exist. @throws AppError `unavailable` */
export async function oldParts(connection: NatsConnection, count: number): Promise<PresentPart[]> {
  const expected = new Set(notifyParts(count));
  return (await presentParts(connection)).filter(({ part }) => !expected.has(part));
}

interface RemovalOptions {
  /** Parts under this number stay. */
  readonly count: number;
  readonly log: Logger;
  readonly windowMs?: number;
}

/**
 * Removes parts under other numbers which have stored nothing for as long as notifications are kept. A process with
 * another number that still publishes to one of them fails, and applies its own streams again.
 */
export async function removeOldParts(
  connection: NatsConnection,
  { count, log, windowMs = NOTIFY_WINDOW_MS }: RemovalOptions,
): Promise<void> {
  for (const { part, info } of await oldParts(connection, count)) {
    const { stream } = part;
    if (info.state.messages > 0 || quietMs(info) < windowMs) continue;
    await askNats(`removing ${stream}`, async () => {
      const { streams } = await managerOf(connection);
      await unlessAbsent(streams.delete(stream), "stream");
    });
    log.info({ stream }, "a part of NOTIFY of another TIMELINE_NOTIFY_PARTS is empty, and was removed");
  }
}

const REMOVAL_MS = MINUTE;

export const startPartRemoval = (connection: NatsConnection, options: RemovalOptions): Loop =>
  startLoop({
    everyMs: REMOVAL_MS,
    closeMs: SECOND,
    jitter: true,
    work: () => removeOldParts(connection, options),
    failed: (error, failures) => {
      if (failures === 1)
        options.log.warn({ error: oneLine(error) }, "old parts of NOTIFY were not removed; it is tried again");
    },
  });

/** A stream that never stored anything has the year 1 as the time of its last message. */
const quietMs = ({ created, state }: StreamInfo): number =>
  sharedNow() - Math.max(Date.parse(created), Date.parse(state.last_ts));
