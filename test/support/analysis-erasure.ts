import { afterAll, afterEach, beforeAll, beforeEach } from "@jest/globals";
import { AccountGone } from "../../src/analysis/sources/source.js";
import { STREAM } from "../../src/contracts/subjects.js";
import { AppError } from "../../src/kernel/errors.js";
import { hookFailpoints } from "../../src/kernel/failpoints.js";
import { openSaga, post, type SagaBench } from "./analysis.js";
import { allTraces, sortedTraces, tracesOf } from "./analysis-traces.js";
import { DATABASES, type DatabaseServer } from "./databases.js";

/** The user whom the tests erase. The id has whatever is escaped in JSON, keys and subjects. */
export const ADA = 'ada "the" first@home';

/** One saga for all tests of a file; each begins with empty servers, and no workers. There is no account `nobody`, and the source fails for `broken`. */
export function sharedErasureBench() {
  const made: { saga?: SagaBench; server?: DatabaseServer } = {};
  beforeAll(async () => {
    made.server = await (DATABASES.at(-1) as (typeof DATABASES)[number]).start();
    made.saga = await openSaga(await made.server.newDatabase());
  }, 60_000);
  beforeEach(async () => {
    const bench = made.saga as SagaBench;
    await bench.db.run("TRUNCATE timeline_analyses, xp_transactions, xp_totals, erased_analyses, erased_rewards");
    await bench.redis.raw.flushall();
    for (const stream of Object.values(STREAM)) await bench.nats.manager.streams.purge(stream);
    bench.posts = (account) => {
      if (account === "nobody") throw new AccountGone("account_unknown", "there is none");
      if (account === "broken") throw new AppError("failed", "the source answers 500");
      return [post(Date.now() - 1_000)];
    };
    bench.publishing = () => undefined;
  });
  afterEach(async () => {
    hookFailpoints(undefined);
    await made.saga?.stopWorkers();
  });
  afterAll(async () => {
    await made.saga?.close();
    await made.server?.stop();
  });
  const saga = new Proxy({} as SagaBench, {
    get: (_none, name) => Reflect.get(made.saga as SagaBench, name),
    set: (_none, name, value) => Reflect.set(made.saga as SagaBench, name, value),
  });
  return { saga, left: async (): Promise<string[]> => sortedTraces(tracesOf(ADA, await allTraces(saga))) };
}
