import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "@jest/globals";
import { REMOVED } from "../../../src/roles/config/names.js";
import { ROLES } from "../../../src/roles/config/process.js";
import { inRepository, PORTS, readText, readYaml, unknownVariables } from "./files.js";

const CHART = "charts/avion-timeline";
const values = readYaml(`${CHART}/values.yaml`) as Record<string, unknown> & {
  roles: Record<string, { enabled: boolean }>;
  service: Record<string, { port: number }>;
  podSecurityContext: { runAsUser: number; runAsGroup: number };
};
const schema = JSON.parse(readText(`${CHART}/values.schema.json`)) as {
  additionalProperties: boolean;
  properties: Record<string, unknown>;
};
const files = [
  "values.yaml",
  "values.schema.json",
  ...readdirSync(inRepository(`${CHART}/templates`)).map((file) => `templates/${file}`),
];

const { version, scripts } = JSON.parse(readText("package.json")) as {
  version: string;
  scripts: Record<"version", string>;
};
/** Files with a copy of the version of package.json. */
const COPIES: readonly [string, RegExp][] = [
  [`${CHART}/Chart.yaml`, /^version: (.*)$/m],
  [`${CHART}/Chart.yaml`, /^appVersion: "(.*)"$/m],
  ["docker-compose.yml", /^ {2}image: avion-timeline:(.*)$/m],
  ["README.md", /^avion-timeline (\S+): redis-server/m],
  ["clients/typescript/package.json", /^ {2}"version": "(.*)",$/m],
];

test("Chart.yaml is a chart of Helm 3", () => {
  expect(readYaml(`${CHART}/Chart.yaml`)).toMatchObject({
    apiVersion: "v2",
    name: "avion-timeline",
    type: "application",
  });
});

test("package.json, the lock file, the chart, the image and the changelog name one version", () => {
  expect(version).toMatch(/^\d+\.\d+\.\d+$/);
  for (const [file, pattern] of COPIES) expect([file, pattern.exec(readText(file))?.[1]]).toEqual([file, version]);
  const lock = JSON.parse(readText("package-lock.json")) as { version: string; packages: { "": { version: string } } };
  expect([lock.version, lock.packages[""].version]).toEqual([version, version]);
  expect(/^## (\S+)$/m.exec(readText("CHANGELOG.md"))?.[1]).toBe(version);
});

test("npm version changes all copies", () => {
  const folder = mkdtempSync(join(tmpdir(), "avion-timeline-version-"));
  try {
    for (const [file] of COPIES) cpSync(inRepository(file), join(folder, file), { recursive: true });
    execFileSync("sh", ["-c", scripts.version], {
      cwd: folder,
      env: { ...process.env, npm_package_version: "12.34.56" },
    });
    for (const [file, pattern] of COPIES)
      expect([file, pattern.exec(readFileSync(join(folder, file), "utf8"))?.[1]]).toEqual([file, "12.34.56"]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("the schema knows each value that has a default, and no other but helm's own", () => {
  expect(schema.additionalProperties).toBe(false);
  expect(Object.keys(schema.properties).sort()).toEqual([...Object.keys(values), "global"].sort());
});

test.each(files)("every variable in %s is one of the service", (file) => {
  const refused = file === "values.schema.json" ? REMOVED : [];
  expect(unknownVariables(readText(`${CHART}/${file}`))).toEqual(refused);
});

test("roles are those of the service", () => {
  expect(Object.keys(values.roles).sort()).toEqual([...ROLES].sort());
});

test("users, posts, analysis, rewards, notifications and ops are disabled by default, all other roles are enabled", () => {
  const on = Object.entries(values.roles).filter(([, { enabled }]) => enabled);
  expect(on.map(([role]) => role)).toEqual(["bridge", "fanout", "api", "gateway"]);
});

test("ports and user are those of the image", () => {
  const ports = Object.entries(values.service).map(([role, { port }]) => [role, port]);
  const { grpc, http, ops } = PORTS;
  expect(Object.fromEntries(ports)).toEqual({
    api: grpc,
    users: grpc,
    posts: grpc,
    notifications: grpc,
    gateway: http,
    ops,
  });
  const { runAsUser, runAsGroup } = values.podSecurityContext;
  expect(readText("Dockerfile")).toContain(`\nUSER ${runAsUser}:${runAsGroup}\n`);
});
