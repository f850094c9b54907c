import { expect, test } from "@jest/globals";
import { createForward } from "../../../src/bridge/bridge.js";
import { EVENT_NAMES, type EventName } from "../../../src/contracts/events.js";
import type { DeadLetter } from "../../../src/delivery/dead-letter.js";
import { AppError } from "../../../src/kernel/errors.js";
import type { Logger } from "../../../src/kernel/logger.js";
import { readClocks } from "../../../src/kernel/time.js";

/** Ids that would be seen wherever they came through, each with something that must not stand in a header or a line. */
const MARK = "tell-tale";
const IDS = [`${MARK}\r\nNats-Msg-Id: forged`, `${MARK}\u202e`, `${MARK} é`, `${MARK}😀`, `${MARK}.*.>`];

const payloadOf = (name: EventName, id: string): Record<string, unknown> =>
  /^(user|standing)_/.test(name)
    ? {
        ...(name === "standing_changed" && { standing: "limited" }),
        user_id: id,
        target_id: `${id}2`,
        follower_id: id,
        following_id: `${id}2`,
        version: 1,
      }
    : { drop_id: id, user_id: id, visibility: "direct", created_at: 1, recipients: [id], revision: 2, updated_at: 1 };

async function textsOf(name: EventName, payload: unknown, refusals = 0) {
  const lines: string[] = [];
  const headers: string[] = [];
  const ids: string[] = [];
  const line = (fields: object, message: string): void => void lines.push(JSON.stringify([fields, message]));
  const log: Logger = {
    debug: line,
    info: line,
    warn: line,
    error: line,
    isLevelEnabled: () => true,
    logsAccess: () => true,
  };
  let left = refusals;
  const forward = createForward({
    admitAll: async (events) =>
      events.map((event) => {
        if (left-- > 0) return new AppError("unavailable", "NATS is unavailable");
        ids.push(event.id, ...Object.values(event.headers), event.subject);
        return { duplicate: false };
      }),
    deadLetters: {
      take: async (deadLetter: DeadLetter) => {
        headers.push(deadLetter.subject, deadLetter.id, ...Object.values(deadLetter.headers));
        return "stored";
      },
    },
    server: {},
    namesErased: async () => false,
    requestReconcile: () => undefined,
    version: "1.2.3",
    exportsTraces: true,
    log,
    observe: () => undefined,
  });
  await forward(
    [
      {
        channel: name,
        payload: Buffer.from(JSON.stringify(payload)),
        arrival: Date.now(),
        publishedAfter: readClocks(),
      },
    ],
    () => undefined,
  );
  return { lines, headers, ids };
}

// Invariant 9.
test.each(EVENT_NAMES)(
  "%s: an admitted event's ids stand encoded in its message id, and in no log line",
  async (name) => {
    for (const id of IDS) {
      const { lines, headers, ids } = await textsOf(name, payloadOf(name, id), 1);
      expect(headers).toEqual([]);
      expect(lines).toHaveLength(1);
      expect(ids.length).toBeGreaterThanOrEqual(2);
      for (const text of [...lines, ...ids]) expect(text).not.toContain(MARK);
    }
  },
);

/** Fields that are wrong, with an id among them where a field takes text. */
const WRONG: Readonly<Record<EventName, (id: string) => object[]>> = {
  drop_created: (id) => [{ created_at: id }, { visibility: id }, { recipients: id }, { drop_id: "~floor" }],
  drop_deleted: (id) => [{ drop_id: [id] }, { user_id: { id } }, { user_id: id.repeat(99) }],
  drop_edited: (id) => [{ revision: id }, { updated_at: id }, { user_id: "" }],
  ap_drop_received: (id) => [{ created_at: id }, { drop_id: `${id}\ud800` }],
  user_followed: (id) => [{ version: id }, { follower_id: "" }],
  user_unfollowed: (id) => [{ version: -1 }, { following_id: id.repeat(99) }],
  user_blocked: (id) => [{ version: id }, { target_id: "" }],
  user_unblocked: (id) => [{ user_id: id.repeat(99) }],
  user_muted: (id) => [{ expires_at: id }, { reposts_only: id }],
  user_unmuted: (id) => [{ version: -1 }, { target_id: [id] }],
  user_erased: (id) => [{ version: id }, { user_id: "" }],
  standing_changed: (id) => [{ version: id }, { standing: id }, { until: id }],
};

// Invariant 9.
test.each(EVENT_NAMES)("%s: a dead letter for a field that is wrong names the field, and no id", async (name) => {
  for (const id of IDS) {
    for (const wrong of WRONG[name](id)) {
      const { lines, headers, ids } = await textsOf(name, { ...payloadOf(name, id), ...wrong });
      expect([ids, lines.length]).toEqual([[], 1]);
      expect(headers).toContain(`dlq.invalid.${name}`);
      expect(headers.join("\n")).toContain(`${Object.keys(wrong)[0]}: `);
      for (const text of [...lines, ...headers]) expect(text).not.toContain(MARK);
    }
  }
});
