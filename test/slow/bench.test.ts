import { expect, test } from "@jest/globals";
import { run } from "../bench/bridge.js";
import { run as runCluster } from "../bench/cluster.js";
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

test("a small run of the benchmark of a Redis Cluster checks what it did, and compares each cost with one server", async () => {
  const bench = new Bench();
  try {
    const parameters = { users: 1_000, posts: 1, entries: 100, turns: 1 };
    const { rows } = await runCluster(parameters, bench);
    const server = { name: "one server", value: expect.any(Number) };
    expect(rows).toEqual(rows.map(({ name }) => expect.objectContaining({ name, unit: "µs", peer: server })));
    expect(rows.map(({ name }) => name)).toEqual([
      ...["an entry, 100 followers: CPU of Redis", "an entry, 100 followers: CPU of the worker"],
      ...["an entry, 1,000 followers: CPU of Redis", "an entry, 1,000 followers: CPU of the worker"],
      ...["a page: CPU of Redis", "a page: CPU of `api`", "a page that is read again: CPU of `api`"],
      ...["one more author in a page: CPU of Redis", "one more author in a page: CPU of Redis and `api`"],
    ]);
  } finally {
    await bench.close();
  }
});
