import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect } from "@jest/globals";
import { parseAllDocuments, stringify } from "yaml";
import { ofKind, REQUIRED, rendering, role, WITH_EXISTING_SECRETS } from "./chart-cases.js";
import { inRepository } from "./files.js";
import { HELM, nested, type Rendered, renderChart, type Values } from "./helm.js";

/** The Secrets of the cluster: Helm asks for what templates look up. */
const secrets = new Map<string, Record<string, string>>();
let cluster: Server;

/** What Helm asks an API server before it renders: its version, its kinds, and single Secrets. */
function answerTo(path: string): object | undefined {
  if (path === "/version") return { major: "1", minor: "30", gitVersion: "v1.30.0" };
  if (path === "/api") return { kind: "APIVersions", versions: ["v1"] };
  if (path === "/apis") return { kind: "APIGroupList", apiVersion: "v1", groups: [] };
  if (path === "/api/v1") {
    const secret = {
      name: "secrets",
      singularName: "secret",
      namespaced: true,
      kind: "Secret",
      verbs: ["get", "list"],
    };
    return { kind: "APIResourceList", groupVersion: "v1", resources: [secret] };
  }
  const [, name = ""] = /^\/api\/v1\/namespaces\/default\/secrets\/([\w-]+)$/.exec(path) ?? [];
  const data = secrets.get(name);
  return data && { kind: "Secret", apiVersion: "v1", metadata: { name, namespace: "default" }, data };
}

beforeAll(async () => {
  cluster = createServer((request, response) => {
    const answer = answerTo(new URL(request.url ?? "", "http://cluster").pathname);
    response.writeHead(answer ? 200 : 404, { "content-type": "application/json" });
    const missing = { kind: "Status", apiVersion: "v1", status: "Failure", reason: "NotFound", code: 404 };
    response.end(JSON.stringify(answer ?? missing));
  });
  await new Promise<void>((resolve) => cluster.listen(0, "127.0.0.1", resolve));
});

afterAll(() => new Promise((resolve) => cluster.close(resolve)));

/** Renders as `helm upgrade` does, against the cluster. */
async function rendered(values: Values): Promise<Rendered[]> {
  const api = [
    "--dry-run=server",
    "--kube-version",
    "1.30.0",
    "--kube-apiserver",
    `http://127.0.0.1:${(cluster.address() as AddressInfo).port}`,
  ];
  const chart = inRepository("charts/avion-timeline");
  const args = ["template", "timeline", chart, ...api, "--namespace", "default", "--values", "-"];
  // No cluster of whoever runs the tests is asked.
  const child = spawn(HELM as string, args, { env: { ...process.env, KUBECONFIG: "/dev/null" } });
  let [text, errors] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => {
    text += chunk.toString();
  });
  child.stderr.on("data", (chunk: Buffer) => {
    errors += chunk.toString();
  });
  child.stdin.end(stringify(nested(values), { version: "1.1" }));
  const [code] = await once(child, "close");
  expect([code, errors]).toEqual([0, ""]);
  return parseAllDocuments(text, { version: "1.1" }).flatMap((one) => (one.toJS() as Rendered | null) ?? []);
}

const SUM = "checksum/existing-secrets";
const sumsIn = (objects: Rendered[]): Record<string, string | undefined> =>
  Object.fromEntries(
    ofKind(objects, "Deployment").map((one) => [
      role(one),
      (one.spec.template.metadata as Rendered["metadata"]).annotations?.[SUM],
    ]),
  );

/** Roles whose pods an upgrade replaces after `change`. */
async function replacedBy(values: Values, change: () => void): Promise<string[]> {
  const before = sumsIn(await rendered(values));
  change();
  const after = sumsIn(await rendered(values));
  return Object.keys(after).filter((name) => before[name] !== after[name]);
}

rendering("an upgrade starts new pods of the roles that read a changed Secret of the operator", async () => {
  const keys = { redis: "cg==", nats: "bg==", jwt: "ag==", database: "ZA==", creds: "Yw==" };
  secrets.set("outside", keys);
  const replaced = (changed: Partial<typeof keys>): Promise<string[]> =>
    replacedBy(WITH_EXISTING_SECRETS, () => void secrets.set("outside", { ...secrets.get("outside"), ...changed }));
  expect(await replaced({})).toEqual([]);
  expect(await replaced({ redis: "Ug==" })).toEqual(["api", "bridge", "fanout", "gateway", "users"]);
  expect(await replaced({ jwt: "Sg==" })).toEqual(["gateway"]);
  expect(await replaced({ database: "RA==" })).toEqual(["gateway", "users"]);
  // The process reads this file again.
  expect(await replaced({ creds: "Qw==" })).toEqual([]);
});

rendering("so does a Secret in extraEnv or extraEnvFrom, and the CA of the key set", async () => {
  secrets.set("more", { token: "dA==" });
  const ref = { secretKeyRef: { name: "more", key: "token" } };
  const change = () => void secrets.set("more", { token: "VA==" });
  const one: Values = { ...REQUIRED, "roles.api.extraEnv": [{ name: "OTEL_TOKEN", valueFrom: ref }] };
  expect(await replacedBy(one, change)).toEqual(["api"]);
  secrets.set("more", { token: "dA==" });
  const whole: Values = { ...REQUIRED, "roles.bridge.extraEnvFrom": [{ secretRef: { name: "more" } }] };
  expect(await replacedBy(whole, change)).toEqual(["bridge"]);
  secrets.set("more", { token: "dA==" });
  expect(await replacedBy({ ...REQUIRED, "tls.jwks.existingSecret": "more" }, change)).toEqual(["gateway"]);
});

rendering("a Secret that the role does not read, or that is not there yet, changes nothing", async () => {
  secrets.delete("outside");
  expect(Object.values(sumsIn(await rendered(WITH_EXISTING_SECRETS)))).not.toContain(undefined);
  const unread = () => void secrets.set("unread", { token: "dA==" });
  expect(await replacedBy({ ...REQUIRED, "tls.nats.existingSecret": "unread" }, unread)).toEqual([]);
});

rendering("without a cluster a changed annotation starts new pods", () => {
  const podsOf = (values: Values) => ofKind(renderChart(values), "Deployment").map(({ spec }) => spec.template);
  const again = { ...WITH_EXISTING_SECRETS, podAnnotations: { "timeline.example/secrets": "2" } };
  expect(podsOf(WITH_EXISTING_SECRETS)).toEqual(podsOf(WITH_EXISTING_SECRETS));
  const annotations = podsOf(again).map(({ metadata }) => (metadata as Rendered["metadata"]).annotations);
  for (const one of annotations) expect(one).toMatchObject({ "timeline.example/secrets": "2" });
  expect(Object.values(sumsIn(renderChart(REQUIRED)))).toEqual([undefined, undefined, undefined, undefined]);
});
