import { spawnSync } from "node:child_process";
import { cp, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { temporaryFolder } from "../../support/brokers.js";

interface Cruise {
  readonly summary: {
    readonly totalCruised: number;
    readonly violations: readonly { readonly from: string; readonly rule: { readonly name: string } }[];
  };
}

let copy: string;

beforeAll(async () => {
  copy = await temporaryFolder("architecture");
  for (const item of ["src", "package.json", "tsconfig.json", ".dependency-cruiser.mjs"])
    await cp(item, join(copy, item), { recursive: true });
  await symlink(join(process.cwd(), "node_modules"), join(copy, "node_modules"));
});
afterAll(() => rm(copy, { recursive: true, force: true }));

function cruise(folder: string): Cruise["summary"] {
  const command = join(process.cwd(), "node_modules/.bin/depcruise");
  const ran = spawnSync(command, ["src", "--output-type", "json"], {
    cwd: folder,
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
  if (ran.stdout === "") throw new Error(ran.stderr);
  return (JSON.parse(ran.stdout) as Cruise).summary;
}

test("imports go one way only, in every module, and every rule finds what is planted against it", async () => {
  const planted: Record<string, [file: string, text: string]> = {
    "kernel-imports-nothing-of-ours": ["src/kernel/planted.ts", 'export { STREAM } from "../contracts/subjects.js";'],
    "contracts-know-the-kernel-and-the-protos": [
      "src/contracts/planted.ts",
      'export { deadLetterOf } from "../delivery/dead-letter.js";',
    ],
    "telemetry-knows-contracts": ["src/telemetry/planted.ts", 'export { verdict } from "../delivery/verdict.js";'],
    "delivery-knows-telemetry": [
      "src/delivery/planted.ts",
      'export { consume } from "../platform/nats/consume/consume.js";',
    ],
    "upstreams-know-no-component": ["src/upstreams/planted.ts", 'export { replay } from "../consistency/replay.js";'],
    "platform-knows-no-component": ["src/platform/planted.ts", 'export { replay } from "../consistency/replay.js";'],
    "state-knows-no-component": ["src/state/planted.ts", 'export { replay } from "../consistency/replay.js";'],
    "state-is-entered-by-its-door": ["src/reads/planted-key.ts", 'export { LOCAL_KEY } from "../state/keys.js";'],
    "components-do-not-import-each-other": ["src/reads/planted.ts", 'export { createPlan } from "../fanout/plan.js";'],
    "posts-drops-know-the-rooms-before": [
      "src/posts/drops/planted.ts",
      'export { targetOf } from "../reactions/targets.js";',
    ],
    "posts-reactions-know-the-rooms-before": [
      "src/posts/reactions/planted.ts",
      'export { linkDrops } from "../remote/links.js";',
    ],
    "posts-remote-know-the-rooms-before": [
      "src/posts/remote/planted.ts",
      'export { activities } from "../documents/activities.js";',
    ],
    "posts-documents-know-the-rooms-before": [
      "src/posts/documents/planted.ts",
      'export { createPostsStore } from "../store.sql.js";',
    ],
    "components-are-entered-by-their-door": [
      "src/roles/planted-inside.ts",
      'export { createRebuild } from "../reads/rebuild.js";',
    ],
    "roles-know-no-command": ["src/roles/planted.ts", 'export { runCli } from "../cli/program.js";'],
    "production-knows-no-sandbox": [
      "src/cli/planted.ts",
      'export { startRedis } from "../sandbox/brokers/servers.js";',
    ],
    "embedded-servers-and-the-world-know-no-role": [
      "src/sandbox/world/planted.ts",
      'export { runCli } from "../../cli/program.js";',
    ],
    "only-adapters-touch-the-platform": [
      "src/fanout/planted.ts",
      'export { createScripts } from "../platform/redis/scripts.js";',
    ],
    "vendors-stay-in-the-platform": [
      "src/bridge/planted.ts",
      'import { Redis } from "ioredis";\nexport const planted = new Redis();',
    ],
    "telemetry-is-observed-in-one-place": ["src/gateway/planted.ts", 'export { metrics } from "@opentelemetry/api";'],
    "caches-have-a-bound-in-bytes": ["src/reads/planted-cache.ts", 'export { LRUCache } from "lru-cache";'],
    "nothing-unresolved": ["src/users/planted.ts", 'export { nothing } from "./nowhere.js";'],
    "no-cycles": [
      "src/operators/dead-letters/a-planted.ts",
      'export { other } from "./b-planted.js";\nexport const one = 1;',
    ],
  };
  await mkdir(join(copy, "src/operators/dead-letters"), { recursive: true });
  await writeFile(
    join(copy, "src/operators/dead-letters/b-planted.ts"),
    'export { one } from "./a-planted.js";\nexport const other = 2;',
  );
  for (const [file, text] of Object.values(planted)) await writeFile(join(copy, file), text);
  const { violations, totalCruised } = cruise(copy);
  const found = violations.map(({ from, rule }) => `${rule.name}: ${from}`);
  for (const [rule, [file]] of Object.entries(planted)) expect(found).toContain(`${rule}: ${file}`);
  expect(found.filter((one) => !one.includes("planted"))).toEqual([]);
  expect(totalCruised).toBeGreaterThan(100);
});

test("the header of every script says what it takes and returns, and nothing else is used; none names a key itself", async () => {
  const scripts = (await readdir("src", { recursive: true })).filter((file) => file.endsWith(".lua"));
  expect(scripts.length).toBeGreaterThanOrEqual(10);
  for (const script of scripts) {
    const text = await readFile(join("src", script), "utf8");
    const header = text
      .split("\n")
      .filter((_, index, lines) => lines.slice(0, index + 1).every((one) => one.startsWith("--")))
      .join("\n");
    expect([script, header]).toEqual([script, expect.stringMatching(/^-- [A-Z][^.]*\.\n--\n/)]);
    expect([script, header]).toEqual([script, expect.stringMatching(/^-- KEYS/m)]);
    expect([script, header]).toEqual([script, expect.stringMatching(/^-- returns {2}\S/m)]);
    const code = text.slice(header.length);
    expect([script, code]).toEqual([script, expect.not.stringMatching(/'(timeline:|sse_|~(floor|complete|state)')/)]);
    const used = [...code.matchAll(/ARGV\[(\d+)\]/g)].map(([, index]) => Number(index));
    const told = [...header.matchAll(/ARGV\[(\d+)(\+?)\]/g)].map(([, index, more]) => ({
      index: Number(index),
      more: more === "+",
    }));
    for (const index of used)
      expect([script, index, told.some((one) => one.index === index || (one.more && index > one.index))]).toEqual([
        script,
        index,
        true,
      ]);
  }
});

test("no source file has more than 250 lines of code", async () => {
  const long: string[] = [];
  let files = 0;
  for (const entry of await readdir("src", { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || !/\.(ts|js|lua)$/.test(path) || path.startsWith(join("src", "gen"))) continue;
    files++;
    const lines = (await readFile(path, "utf8")).split("\n").filter((line) => !/^\s*(\/\/|\/?\*|--|$)/.test(line));
    if (lines.length > 250) long.push(`${path}: ${lines.length}`);
  }
  expect(long).toEqual([]);
  expect(files).toBeGreaterThan(100);
});

/** Of what these compare, nothing is stored: deadlines, pauses and rates of one process, and what other machines date. */
const BY_THE_OWN_CLOCK = [
  "analysis/http/estimate.ts",
  "analysis/sources/bounded-fetch.http.ts",
  "analysis/sources/call-source.http.ts",
  "cli/bootstrap.ts",
  "cli/terminal.ts",
  "gateway/expand.ts",
  "kernel/deadlines.ts",
  "kernel/lock-file.ts",
  "kernel/time.ts",
  "operators/doctor/checks.grpc.ts",
  "operators/doctor/checks.redis.ts",
  "platform/grpc/unary.ts",
  "platform/redis/clock.ts",
  "reads/erased.ts",
  "reads/get-timeline.ts",
  "reads/index.ts",
  "reads/rebuild.ts",
  "reads/sources.grpc.ts",
  "roles/certificates.ts",
  "roles/gateway.ts",
  "state/entries/list-judge.ts",
  "state/hidden/changes.redis.ts",
  "state/hidden/hidden.grpc.ts",
  "state/hidden/relations.redis.ts",
  "upstreams/call.grpc.ts",
  "upstreams/faults.ts",
  "users/prepare.ts",
];

// Invariant 5.
test("times that are stored are dated and judged by the clock that all processes share", async () => {
  const files = (await readdir("src", { recursive: true })).filter((file) => file.endsWith(".ts"));
  const found: string[] = [];
  for (const file of files.filter((name) => !name.startsWith("sandbox/")))
    if (/\bDate\.now\b(?!\(\)`)/.test(await readFile(join("src", file), "utf8"))) found.push(file);
  expect(found.sort()).toEqual(BY_THE_OWN_CLOCK);
});

/** Keys, members that are no ids, and scripts. A lease needs a script, and so does a key of a wrong type. */
test("no folder but the state contains a key, a magic member or a script", async () => {
  const files = (await readdir("src", { recursive: true })).filter((file) => !/^(state|gen|sandbox)\//.test(file));
  const outside = files.filter((file) => file.endsWith(".lua") && !file.startsWith("platform/redis/"));
  for (const file of files.filter((name) => name.endsWith(".ts") && name !== "kernel/ids.ts"))
    if (
      /["'](timeline:|sse_|~(floor|complete|state)\b)|`(timeline:|sse_|analysis:)[^`]*\$\{/.test(
        await readFile(join("src", file), "utf8"),
      )
    )
      outside.push(file);
  expect(outside).toEqual([]);
});
