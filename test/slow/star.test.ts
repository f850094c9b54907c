import { readFileSync } from "node:fs";
import { credentials } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { ACTIVITY_SUBJECT_OF } from "../../src/contracts/activity.js";
import { NotificationServiceClient, NotificationServiceService } from "../../src/gen/avion/notifications.js";
import { chunked } from "../../src/kernel/concurrency.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { createMaintenanceStore } from "../../src/notifications/maintenance.sql.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { eventually } from "../support/eventually.js";
import { callsOf } from "../support/grpc.js";
import { postgresPrograms, startPostgres } from "../support/postgres.js";
import { type EventStream, openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";

const LIKES = 100_000;
/** One like of a drop of somebody else comes after as many of the star's drop. */
const BETWEEN = 5_000;
const PATIENCE_MS = 300_000;
const MOST_GROWN_BYTES = 300_000_000;
const TRIMMED_AT_ONCE = 20_000;

const countOf = (stream: EventStream): number =>
  stream.events.reduce((sum, { data }) => sum + Number(data["count"] ?? 1), 0);

const like = (drop: string, author_id: string, user_id: string) => ({
  ...{ subject: ACTIVITY_SUBJECT_OF.drop_reacted, id: `${drop}:${user_id}` },
  body: JSON.stringify({ drop_id: drop, author_id, user_id, kind: "like", active: true, version: 1 }),
});

/** Publishes likes of the star's drop, and of one of ada's now and then. */
async function publishLikes({ streams }: Stack): Promise<void> {
  const { publishAll } = createPublisher(streams.connection);
  const fans = Array.from({ length: LIKES }, (_, fan) => like("s1", "star", `fan${fan}`));
  for (const [round, some] of chunked(fans, BETWEEN).entries()) {
    const stored = await publishAll([...some, like(`a${round}`, "ada", "bob")]);
    expect(stored.filter((ack) => ack instanceof AppError)).toEqual([]);
  }
}

/** Reads resident memory in bytes: of now, or the most so far. */
function memoryOf(pid: number, field: "VmRSS" | "VmHWM"): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return 1_024 * Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]);
}

async function listed(stack: Stack, address: string): Promise<number> {
  const client = new NotificationServiceClient(address, credentials.createInsecure());
  stack.defer(() => client.close());
  const { listNotifications } = callsOf(client, NotificationServiceService);
  let count = 0;
  for (let [max_id, more] = ["", true]; more; ) {
    const page = await listNotifications({ user_id: "star", limit: 100, max_id });
    count += page.notifications.length;
    [max_id, more] = [page.next_max_id, page.has_more];
  }
  return count;
}

if (postgresPrograms() !== undefined)
  // Invariant 11.
  testWithStack(
    "100,000 likes of one drop are told at most once a second, leave 1,000 rows, and are written after others are told",
    { service: false, slow: true, timeoutMs: 600_000 },
    async (stack) => {
      const postgres = await startPostgres();
      stack.afterServices(() => postgres.stop());
      const db = openPostgres({ url: postgres.url, poolSize: 2, name: "test" }, silent);
      stack.afterServices(() => db.close());
      const env = { DATABASE_URL: postgres.url };
      const [gateway, worker] = [
        await stack.start({ roles: "gateway" }),
        await stack.start({ roles: "notifications", env }),
      ];
      const [star, ada] = [await openEvents(gateway.httpUrl, "star"), await openEvents(gateway.httpUrl, "ada")];
      stack.defer(() => star.close());
      stack.defer(() => ada.close());
      const rows = async (): Promise<number> => {
        const count = "SELECT count(*) AS rows FROM notifications WHERE user_id = 'star'";
        return (await db.query<{ rows: number }>(count))[0]?.rows ?? 0;
      };
      const before = memoryOf(worker.pid, "VmRSS");
      const started = performance.now();
      await publishLikes(stack);
      await eventually(() => ada.events.length === LIKES / BETWEEN, "ada is told of each like", PATIENCE_MS);
      const written = await rows();
      await eventually(() => countOf(star) >= LIKES, "all likes are told", PATIENCE_MS);
      const seconds = (performance.now() - started) / 1_000;
      // The last like of ada's drop came after all those of the star's.
      expect(written).toBeLessThan(0.9 * LIKES);
      expect(countOf(star)).toBe(LIKES);
      expect(star.events.length).toBeLessThanOrEqual(Math.ceil(seconds) + 1);
      expect(ada.events).toHaveLength(LIKES / BETWEEN);
      expect(memoryOf(worker.pid, "VmHWM") - before).toBeLessThan(MOST_GROWN_BYTES);
      expect(await listed(stack, worker.grpcAddress)).toBe(1_000);
      // As the maintenance does once the rows are an hour old.
      const { trim } = createMaintenanceStore(db, { settledMs: -60_000 });
      while (await trim(TRIMMED_AT_ONCE));
      expect(await rows()).toBe(1_000);
      expect(await listed(stack, worker.grpcAddress)).toBe(1_000);
    },
  );
