import { expect, test } from "@jest/globals";
import { run } from "../bench/bridge.js";
import { Bench } from "../bench/support/bench.js";
import { reportOf, sectionOf } from "../bench/support/report.js";

test("a small run of the benchmark of the bridge checks what it did, and says what it was compared with", async () => {
  const bench = new Bench();
  try {
    const parameters = { posts: 500 };
    const report = reportOf(await run(parameters, bench), { name: "bridge", versions: bench.versions, parameters });
    const compared = { value: expect.any(Number), peer: expect.objectContaining({ value: expect.any(Number) }) };
    expect(report.rows).toEqual([
      expect.objectContaining({ name: "events admitted", ...compared }),
      expect.objectContaining({ name: "bound: bare loop that checks events", ...compared }),
      expect.objectContaining({ name: "bound: bare loop", ...compared }),
      expect.objectContaining({ name: "events admitted: CPU of the bridge", ...compared }),
    ]);
    expect(Object.keys(report.versions)).toEqual(["Node", "Redis", "nats-server"]);
    expect(sectionOf(report)).toContain("--posts 500");
  } finally {
    await bench.close();
  }
});
