import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { faultTest } from "../support/fault-run.js";
import { BIG_AUTHOR, READERS } from "../support/history-cast.js";
import { openReader } from "../support/reader.js";
import { held, homeKey } from "../support/timeline-keys.js";

faultTest("a home's key lost in mid-rebuild, again and again", { seed: 91 }, async (run) => {
  const { upstreams } = run.stack;
  await run.publishSteps(60);
  const readers = READERS.slice(0, 6);
  await run.loseHomes(...readers);
  const heal = upstreams.inject({ method: "GetDropsByUserID", user: BIG_AUTHOR, delayMs: 400 });
  const reading = readers.map((reader) => run.reads.home(reader, { limit: 100 }, 40_000));
  for (let round = 0; round < 3; round += 1) {
    await eventually(() => upstreams.held() > 0, "rebuilds are under way");
    await run.loseHomes(...readers);
    await run.publishSteps(20);
  }
  heal();
  run.faultEnded();
  await Promise.all(reading);
  await run.readAll();
  return undefined;
});

/** The lease of a dead rebuild runs out after ten seconds; until then pages are degraded. */
faultTest("a process killed in mid-rebuild, before and after it has read", { seed: 92 }, async (run) => {
  const { redis } = run.stack;
  await run.publishSteps(60);
  await run.done();
  const victims = { "rebuild-marked": READERS[3] as string, "rebuild-read": READERS[4] as string };
  for (const [point, reader] of Object.entries(victims)) {
    await run.loseHomes(reader);
    const api = await run.stack.start({ roles: "api", env: { AVION_TEST_FAILPOINTS: `${point}=kill` } });
    const reads = openReader(api.grpcAddress);
    await reads.home(reader).catch(() => undefined);
    expect((await api.exited).signal).toBe("SIGKILL");
    reads.close();
    expect((await held(redis, homeKey(reader))).floor).toBeLessThan(0);
  }
  run.faultEnded();
  await run.publishSteps(20);
  for (const reader of Object.values(victims)) {
    const whole = async () => !(await run.reads.home(reader)).degraded;
    await eventually(whole, "the home is whole again", 60_000);
  }
  return undefined;
});
