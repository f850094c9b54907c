import { chunked } from "../../../src/kernel/concurrency.js";
import { createPublisher } from "../../../src/platform/nats/publish.js";
import type { Streams } from "../../support/streams.js";

const AT_ONCE = 500;
const PATIENCE_MS = 120_000;

/** The id of a drop, and its author. */
export type Posted = readonly [drop: string, author: string];

/** Publishes the drops in this order. Resolves once each is in all homes and acked. */
export async function postDrops(streams: Streams, drops: readonly Posted[]): Promise<void> {
  const { publishAll } = createPublisher(streams.connection);
  const before = await streams.count("DROPS");
  for (const some of chunked(drops, AT_ONCE)) {
    const messages = some.map(([drop_id, user_id]) => {
      const body = JSON.stringify({ drop_id, user_id, visibility: "followers", created_at: Date.now() });
      return { subject: "drops.created", id: `drop_created:${drop_id}`, body };
    });
    await publishAll(messages);
  }
  await streams.settledWith(before + drops.length, PATIENCE_MS);
}
