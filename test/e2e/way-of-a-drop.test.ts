import { beforeAll, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { openEvents } from "../support/sse.js";
import { created } from "../support/timeline-events.js";
import {
  callsUpwards,
  type Followed,
  filesOf,
  filesPassed,
  follow,
  functionsMissed,
  readDrawing,
  stepsMissed,
} from "../support/way.js";

const MAX_FILES = 27;
const DROPS = 20;
/**
 * Pure helpers, shared facts and rules, telemetry, what follows the completion, and what compares the log with the
 * upstreams or samples the servers now and then: not drawn, as docs/architecture.md says.
 */
const NOT_DRAWN =
  /^(kernel|contracts|gen)\/|^bridge\/neighbours\.redis$|^fanout\/(change|standings|shared)$|^gateway\/shared\/|^state\/(keys|kinds|key-lists|scan-keys|erased\/(erased|erasures|without-erased|bucket)|hidden\/hidden|standing\/[a-z.]+|fences\/(types|store)|big-authors\/pulled|messages|limits|entries\/(home-looks|removal-notes)|listeners\/(listed|logouts))|^gateway\/session\/(position|state)$|^telemetry\/|(^|\/)observe$|^consistency\/(audit|restored)\/|^platform\/(redis\/servers|nats\/(ask|depths|queue|read-log|wire|consume\/state))$/;

const drawn = readDrawing("The way of a drop");
let followed: Followed;

beforeAll(async () => {
  followed = await follow({
    ...{ drawn, roles: "bridge,fanout,gateway", times: DROPS },
    open: async ({ world, publish }, service) => {
      world.follow("bob", "alice");
      const stream = await openEvents(service.httpUrl, "bob");
      let drops = 0;
      const post = async (count: number): Promise<void> => {
        for (let index = 0; index < count; index++) {
          const drop = {
            ...{ drop_id: `way-${++drops}`, user_id: "alice", created_at: Date.now() },
            visibility: "public" as const,
          };
          world.post(drop);
          await publish(created(drop));
          await eventually(() => stream.drops().includes(drop.drop_id), "the drop is in the stream", 60_000);
        }
      };
      // The first drop reads the followers, which are cached then.
      await post(3);
      return post;
    },
  });
}, 180_000);

test("the drawing has at most 27 files", () => {
  expect(filesOf(drawn).length).toBeGreaterThan(10);
  expect(filesOf(drawn).length).toBeLessThanOrEqual(MAX_FILES);
});

test("a drop passes the drawn files and no others", () => {
  expect(filesPassed(followed, drawn, DROPS, NOT_DRAWN)).toEqual(filesOf(drawn).sort());
});

test("a drop passes every drawn function", () => {
  expect(functionsMissed(followed, drawn, DROPS)).toEqual([]);
});

test("a drop passes the steps in the drawn order", () => {
  expect(stepsMissed(followed, drawn)).toEqual([]);
});

test("files are entered from above: a drawn file never calls one that is drawn above it", () => {
  expect(callsUpwards(followed, drawn)).toEqual([]);
});
