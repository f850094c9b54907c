import { readdirSync } from "node:fs";
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

test("Chart.yaml is a chart of Helm 3 for this version of the service", () => {
  const { version } = JSON.parse(readText("package.json")) as { version: string };
  expect(readYaml(`${CHART}/Chart.yaml`)).toMatchObject({
    apiVersion: "v2",
    name: "avion-timeline",
    type: "application",
    version: expect.stringMatching(/^\d+\.\d+\.\d+/),
    appVersion: version,
  });
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

test("users, posts, analysis and rewards are disabled by default, all other roles are enabled", () => {
  const on = Object.entries(values.roles).filter(([, { enabled }]) => enabled);
  expect(on.map(([role]) => role)).toEqual(["bridge", "fanout", "api", "gateway"]);
});

test("every value has a comment that explains it", () => {
  const lines = readText(`${CHART}/values.yaml`).split("\n");
  const sentences = lines.filter((line) => /^\s*# .*\.$/.test(line));
  expect(sentences.length).toBeGreaterThan(40);
});

test("ports and user are those of the image", () => {
  const ports = Object.entries(values.service).map(([role, { port }]) => [role, port]);
  const { grpc, http } = PORTS;
  expect(Object.fromEntries(ports)).toEqual({ api: grpc, users: grpc, posts: grpc, gateway: http });
  const { runAsUser, runAsGroup } = values.podSecurityContext;
  expect(readText("Dockerfile")).toContain(`\nUSER ${runAsUser}:${runAsGroup}\n`);
});
