import { startSampling } from "../delivery/sampling.js";
import type { Logger } from "../kernel/logger.js";
import { SECOND } from "../kernel/time.js";
import { announcing, createAnnounce } from "../outbox/channels.redis.js";
import { createDeadLetterEvent } from "../outbox/dead-letters.js";
import { backlogFigures, observeOutbox } from "../outbox/observe.js";
import { createPublishEvent } from "../outbox/publish.nats.js";
import { type RelayDeps, startRelay } from "../outbox/relay.js";
import { createNotifyRelays, createOutboxStore, wakeChannel } from "../outbox/store.sql.js";
import { startOutboxUpkeep } from "../outbox/upkeep.js";
import { deadLettersTo } from "./consumers.js";
import type { StoringRoleDeps } from "./role.js";
import { VERSION } from "./version.js";

/** A service's outbox on its way out. */
export interface Relaying {
  /** Something was written. Never throws. */
  wake(): void;
  notReady(): string | undefined;
  close(): Promise<void>;
}

/** Counting what waits takes longer the more waits. */
const BACKLOG_SAMPLE_MS = 10 * SECOND;

/** Starts a relay for what `source` writes, and what looks after its outbox. */
export async function startRelaying(
  { config, connections, db, log }: StoringRoleDeps,
  source: string,
  prepare?: RelayDeps["prepare"],
): Promise<Relaying> {
  const store = createOutboxStore(db, source);
  const observe = observeOutbox(source);
  const publish = createPublishEvent(connections.publish);
  const relay = startRelay({
    store,
    ...(prepare ? { prepare } : {}),
    publish: config.outbox.relayChannels ? announcing(publish, createAnnounce(connections.scripts.client)) : publish,
    deadLetter: createDeadLetterEvent({ source, deadLetters: deadLettersTo(connections.publish), version: VERSION }),
    log,
    observe,
  });
  await db.listen(wakeChannel(source), relay.wake);
  const upkeep = startOutboxUpkeep({ store, log });
  const backlog = startSampling([{ name: `outbox ${source}`, take: () => backlogFigures(store, source) }], {
    everyMs: BACKLOG_SAMPLE_MS,
    log,
  });
  const tellOthers = sparingly(createNotifyRelays(db, source), log);
  return {
    wake: () => {
      relay.wake();
      tellOthers();
    },
    notReady: () => (relay.healthy() ? undefined : `${source}: the outbox cannot be published`),
    close: async () => {
      await Promise.all([relay.close(), upkeep.close(), backlog.close()]);
    },
  };
}

/** The relay of this process was woken already: another's is needed only where this one cannot keep up. */
const TELL_EVERY_MS = 100;

/**
 * At most one NOTIFY under way, and one in a while: PostgreSQL lets one transaction at a time commit with a NOTIFY, so
 * that one in each writer's transaction would make all of them wait for each other.
 */
function sparingly(notify: () => Promise<void>, log: Logger): () => void {
  let next = 0;
  return () => {
    const now = Date.now();
    if (now < next) return;
    next = now + TELL_EVERY_MS;
    notify().catch((error: Error) => log.debug({ error: error.message }, "the other relays could not be woken"));
  };
}
