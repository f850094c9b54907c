import { expect } from "@jest/globals";
import { slowTest, quickTest as test } from "../../support/suite.js";
import { EVERYTHING, REQUIRED, WITH_EXISTING_SECRETS } from "./chart-cases.js";
import { readText, readYaml } from "./files.js";
import { HELM, renderText, type Values } from "./helm.js";

const CHART = "charts/avion-timeline";
const MORE: Values = {
  ...EVERYTHING,
  "networkPolicy.apiFrom": [{ podSelector: {} }],
  "metrics.prometheusRule.enabled": true,
  "metrics.dashboards.enabled": true,
  "ingress.grpc.enabled": true,
  "ingress.grpc.hosts": ["grpc.example"],
  "gatewayApi.http.enabled": true,
  "gatewayApi.http.parentRefs": [{ name: "public" }],
  "gatewayApi.grpc.enabled": true,
  "gatewayApi.grpc.parentRefs": [{ name: "inside" }],
  "audit.enabled": true,
  "backupCheck.enabled": true,
  "backupCheck.volume": { nfs: { server: "files", path: "/" } },
  "tls.redis.existingSecret": "redis-ca",
  "tls.database.existingSecret": "database-ca",
  "tls.jwks.existingSecret": "jwks-ca",
};
/** A value changes something in one of these, or in none. */
const BASES: Values[] = [
  MORE,
  { ...REQUIRED, "autoscaling.enabled": true },
  WITH_EXISTING_SECRETS,
  { ...MORE, "autoscaling.enabled": false },
  { ...REQUIRED, "tls.enabled": true, "tls.issuer": { name: "inside" } },
  { ...REQUIRED, "tls.enabled": true, "tls.existingSecret": "between" },
  { ...MORE, "autoscaling.signals": "keda", "autoscaling.prometheusUrl": "http://prometheus:9090" },
  { ...REQUIRED, "jwt.secret": "", "jwt.jwksUrl": "https://a/keys", "jwt.issuer": "a", "jwt.audience": "b" },
  { ...REQUIRED, "serviceAccount.create": false },
];
/** Another value than the default, where "changed" and the like are refused. */
const OTHERS: Values = {
  "image.digest": `sha256:${"a".repeat(64)}`,
  "image.pullPolicy": "Always",
  imagePullSecrets: ["other"],
  "redis.url": "redis://other:6379",
  "nats.url": "nats://other:4222",
  "database.url": "postgres://other/avion",
  "upstreams.userService": "other:1",
  "upstreams.postService": "other:1",
  "upstreams.timelineService": "other:1",
  "upstreams.notificationService": "other:1",
  "jwt.secret": "another secret that is long enough for HS256",
  "jwt.jwksUrl": "https://other/keys",
  dnsPolicy: "Default",
  "tls.issuer.kind": "ClusterIssuer",
  "autoscaling.signals": "external",
  "autoscaling.prometheusUrl": "http://other:9090",
  "service.api.type": "NodePort",
  "service.users.type": "NodePort",
  "service.posts.type": "NodePort",
  "service.gateway.type": "NodePort",
  "ingress.paths": ["/other"],
  "ingress.pathType": "Exact",
  "ingress.hosts": ["other.example"],
  "ingress.grpc.hosts": ["other.example"],
  "gatewayApi.http.hostnames": ["other.example"],
  "gatewayApi.grpc.hostnames": ["other.example"],
  "audit.schedule": "1 2 3 4 5",
  "audit.users": 10,
  "backupCheck.schedule": "1 2 3 4 5",
  "backupCheck.workSize": "30Gi",
  "strategy.type": "Recreate",
};

/** Paths of the values that have a default, and these. */
function leavesOf(value: unknown, path: string[] = []): [string, unknown][] {
  const isBranch =
    typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length > 0;
  if (!isBranch) return [[path.join("."), value]];
  return Object.entries(value).flatMap(([key, inner]) => leavesOf(inner, [...path, key]));
}

/** One of them differs from what a base has. */
function othersThan(path: string, value: unknown): unknown[] {
  if (path in OTHERS) return [OTHERS[path]];
  if (typeof value === "boolean") return [true, false];
  if (typeof value === "number") return [value + 1];
  if (Array.isArray(value)) return [[{ name: "other" }]];
  if (path.endsWith("config")) return [{ TIMELINE_RETRY_BASE_MS: "1" }];
  return [typeof value === "object" ? { other: "changed" } : "changed"];
}

const ofBases = new Map<Values, string>();

function renderedBase(base: Values): string {
  const text = ofBases.get(base) ?? renderText(base);
  ofBases.set(base, text);
  return text;
}

/** Returns true if the rendered objects change with the value at `path`; a base that sets it, or what lies around it, gives way. */
function changes(base: Values, path: string, value: unknown): boolean {
  const around = Object.entries(base).filter(([at]) => at !== path && !at.startsWith(`${path}.`));
  const parent = around.find(([at]) => path.startsWith(`${at}.`));
  const changed: Values = Object.fromEntries(around.filter(([at]) => at !== parent?.[0]));
  if (parent) changed[parent[0]] = { ...(parent[1] as object), [path.slice(parent[0].length + 1)]: value };
  else changed[path] = value;
  try {
    return renderText(changed) !== renderedBase(base);
  } catch {
    return false;
  }
}

/** One template renders all roles. */
const ALIKE =
  /^roles\.(api|posts|analysis|rewards|notifications|ops)\.|^service\.(posts|notifications|ops)\.|nginx\.ingress/;
const LEAVES = leavesOf(readYaml(`${CHART}/values.yaml`)).filter(([path]) => !ALIKE.test(path));

// It renders once for each value, which takes a minute.
if (HELM)
  slowTest(
    "every value that has a default changes what is rendered",
    async () => {
      expect(LEAVES.length).toBeGreaterThan(150);
      const idle = LEAVES.filter(
        ([path, value]) => !BASES.some((base) => othersThan(path, value).some((other) => changes(base, path, other))),
      );
      expect(idle.map(([path]) => path)).toEqual([]);
    },
    300_000,
  );

interface Described {
  readonly $ref?: string;
  readonly description?: string;
  readonly properties?: Readonly<Record<string, Described>>;
}

const schema = JSON.parse(readText(`${CHART}/values.schema.json`)) as Described & {
  readonly definitions: Readonly<Record<string, Described>>;
};

const describedIn = (node: Described, path: string[] = []): [string, string | undefined][] =>
  Object.entries(node.properties ?? {}).flatMap(([key, inner]) => [
    [[...path, key].join("."), inner.description] as [string, string | undefined],
    ...describedIn(inner, [...path, key]),
  ]);

/** The comments of values.yaml that stand right above a value. */
function commentsOf(text: string): ReadonlyMap<string, string> {
  const comments = new Map<string, string>();
  const path: { indent: number; key: string }[] = [];
  let above: { indent: number; text: string }[] = [];
  for (const line of text.split("\n")) {
    const [, space = "", comment] = /^( *)# ?(.*)$/.exec(line) ?? [];
    if (comment !== undefined) {
      above.push({ indent: space.length, text: comment });
      continue;
    }
    const [, indentation = "", key] = /^( *)([A-Za-z][\w./-]*):/.exec(line) ?? [];
    if (key !== undefined) {
      const indent = indentation.length;
      while ((path.at(-1)?.indent ?? -1) >= indent) path.pop();
      path.push({ indent, key });
      const name = path.map((one) => one.key).join(".");
      if (above.at(-1)?.indent === indent) comments.set(name, above.map((one) => one.text).join(" "));
    }
    above = [];
  }
  return comments;
}

test("the schema describes every field in sentences, in the words of values.yaml where it has some", () => {
  const own = describedIn(schema);
  const shared = Object.entries(schema.definitions).flatMap(([name, node]) => describedIn(node, [name]));
  expect(own.length + shared.length).toBeGreaterThan(200);
  const mute = [...own, ...shared].filter(([, description]) => !/^[A-Z].*\.$/.test(description ?? ""));
  expect(mute.map(([path]) => path)).toEqual([]);
  const comments = commentsOf(readText(`${CHART}/values.yaml`));
  const both = own.filter(([path]) => comments.has(path));
  expect(both.length).toBeGreaterThan(80);
  expect(both.filter(([path, description]) => description !== comments.get(path))).toEqual([]);
});
