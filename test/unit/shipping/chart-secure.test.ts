import { expect } from "@jest/globals";
import { containerOf, environmentOf, OWN_UPSTREAMS, ofKind, REQUIRED, rendering, role, SECRET } from "./chart-cases.js";
import { type Rendered, renderChart, renderNotes, type Values } from "./helm.js";

const policies = (values: Values): Map<string, Rendered> =>
  new Map(ofKind(renderChart(values), "NetworkPolicy").map((policy) => [role(policy), policy]));

rendering("by default gRPC is open only to the roles that call it", () => {
  const own = policies(OWN_UPSTREAMS);
  const gateway = { "app.kubernetes.io/component": "gateway" };
  const callsApi = own.get("api")?.spec.ingress.flatMap(({ from }) => from);
  expect(callsApi).toEqual([{ podSelector: { matchLabels: expect.objectContaining(gateway) } }]);
  for (const name of ["users", "posts"]) {
    const [rule, ...more] = own.get(name)?.spec.ingress ?? [];
    expect(more).toEqual([]);
    expect(JSON.stringify(rule?.from)).toContain(
      `"operator":"In","values":["api","fanout","bridge","analysis","posts","notifications","ops","audit","gateway"]`,
    );
    expect(rule?.from).toHaveLength(1);
  }
  for (const name of ["bridge", "fanout"]) expect(own.get(name)?.spec.ingress).toEqual([]);
  expect(own.get("gateway")?.spec.ingress.map(({ ports }) => ports)).toEqual([[{ port: "http", protocol: "TCP" }]]);
});

rendering("the role api is open to the peers that are named", () => {
  const front = { podSelector: { matchLabels: { app: "front" } } };
  const alone = { ...REQUIRED, "networkPolicy.apiFrom": [front], "roles.gateway.enabled": false };
  const api = policies(alone).get("api");
  expect(api?.spec.ingress).toEqual([{ ports: [{ port: "grpc", protocol: "TCP" }], from: [front] }]);
});

const MUTUAL = { files: ["ca.crt", "tls.crt", "tls.key"].map((name) => ({ key: name, path: name })) };

function filesOf(objects: Rendered[], name: string, channel: "GRPC" | "UPSTREAM") {
  const deployment = ofKind(objects, "Deployment").find((one) => role(one) === name) as Rendered;
  const env = environmentOf(deployment, objects);
  const volume = deployment.spec.template.spec.volumes.find(({ name: of }) => of === `tls-${channel.toLowerCase()}`);
  const mount = containerOf(deployment).volumeMounts.find(({ name: of }) => of === volume?.name);
  expect(mount?.mountPath).toBe(env[`TIMELINE_${channel}_TLS`]);
  return { secret: volume?.secret?.secretName, files: volume?.secret?.items };
}

rendering("tls.enabled gives servers and callers certificates of one CA", () => {
  const objects = renderChart({ ...OWN_UPSTREAMS, "tls.enabled": true, "tls.existingSecret": "between" });
  for (const name of ["api", "users", "posts"])
    expect(filesOf(objects, name, "GRPC")).toEqual({ secret: "between", ...MUTUAL });
  for (const name of ["api", "fanout", "bridge"])
    expect(filesOf(objects, name, "UPSTREAM")).toEqual({ secret: "between", ...MUTUAL });
  expect(ofKind(objects, "Certificate")).toEqual([]);
});

rendering("an issuer of cert-manager makes the certificate, for every name a role is called by", () => {
  const objects = renderChart({ ...OWN_UPSTREAMS, "tls.enabled": true, "tls.issuer": { name: "inside" } });
  const [certificate] = ofKind(objects, "Certificate") as unknown as {
    spec: { secretName: string; dnsNames: string[]; usages: string[] };
  }[];
  const called = filesOf(objects, "api", "UPSTREAM");
  expect(called).toEqual({ secret: certificate?.spec.secretName, ...MUTUAL });
  expect(certificate?.spec.usages).toEqual(["server auth", "client auth"]);
  const services = ofKind(objects, "Service").map(({ metadata }) => metadata.name);
  const grpc = services.filter((name) => /-(api|users|posts)(-headless)?$/.test(name));
  expect(certificate?.spec.dnsNames).toEqual(expect.arrayContaining(grpc));
});

rendering("a role may have a NATS_URL of its own", () => {
  const secret = { "nats.url": "", "nats.existingSecret": { name: "outside", key: "all" } };
  const objects = renderChart({ ...REQUIRED, ...secret, "roles.bridge.natsUrlKey": "bridge" });
  const keys = ofKind(objects, "Deployment").map((one) => [
    role(one),
    containerOf(one).env.find(({ name }) => name === "NATS_URL")?.valueFrom?.secretKeyRef?.key,
  ]);
  expect(Object.fromEntries(keys)).toEqual({ api: "all", bridge: "bridge", fanout: "all", gateway: "all" });
});

const KEYS = { "jwt.secret": "", "jwt.jwksUrl": "https://login.example/keys" };
const CLAIMS = { "jwt.issuer": "https://login.example", "jwt.audience": "timeline" };

rendering.each<[string, Values, RegExp]>([
  ["a short secret", { "jwt.secret": SECRET.slice(0, 31) }, /jwt\/secret/],
  ["a key set without issuer and audience", KEYS, /jwt\.issuer and jwt\.audience are needed/],
  ["a key set over http", { ...KEYS, ...CLAIMS, "jwt.jwksUrl": "http://login.example/keys" }, /must begin with https:/],
  [
    "a monitor that the network policies keep out",
    { "metrics.serviceMonitor.enabled": true },
    /serviceMonitor\.enabled needs networkPolicy\.metricsFrom/,
  ],
  ["TLS without a certificate", { "tls.enabled": true }, /tls\.existingSecret or tls\.issuer\.name is needed/],
  [
    "a role's own NATS_URL in no Secret",
    { "roles.bridge.natsUrlKey": "bridge" },
    /nats\.existingSecret\.name is needed/,
  ],
])("%s is refused before anything is installed", (_name, values, why) => {
  expect(() => renderChart({ ...REQUIRED, ...values })).toThrow(why);
});

rendering("a monitor is taken where policies are off, or let it in", () => {
  const monitor = { ...REQUIRED, "metrics.serviceMonitor.enabled": true };
  const from = [{ namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "monitoring" } } }];
  expect(() => renderChart({ ...monitor, "networkPolicy.enabled": false })).not.toThrow();
  const all = policies({ ...monitor, "networkPolicy.metricsFrom": from });
  all.delete("audit");
  for (const [name, { spec }] of all)
    expect([name, spec.ingress]).toEqual([
      name,
      expect.arrayContaining([{ ports: [{ port: "http", protocol: "TCP" }], from }]),
    ]);
});

rendering("unsafe tokens can be allowed explicitly", () => {
  const values = { ...REQUIRED, ...KEYS, "config.TIMELINE_JWT_ALLOW_UNSAFE": "true" };
  expect(() => renderChart(values)).not.toThrow();
});

const openBy = (values: Values): string => renderNotes(values).split("What is open")[1] ?? "";

rendering("the notes name the ports that are open", () => {
  const plain = openBy(REQUIRED);
  for (const said of [/gRPC has no TLS/, /apiFrom is empty/, /egress is empty/, /nats\.url is without TLS/])
    expect(plain).toMatch(said);
  expect(openBy({ ...REQUIRED, "networkPolicy.enabled": false })).toMatch(/every pod .* posts as anybody/);
  const closed = openBy({
    ...REQUIRED,
    ...{ "tls.enabled": true, "tls.existingSecret": "between" },
    ...{ "nats.url": "tls://nats:4222", "redis.url": "rediss://redis:6379" },
    "networkPolicy.apiFrom": [{ podSelector: {} }],
    "networkPolicy.gatewayFrom": [{ podSelector: {} }],
    "networkPolicy.egress": [{ ports: [{ port: 6379 }] }],
  });
  expect(closed.match(/^- .*/gm)).toEqual([expect.stringContaining("network plugin")]);
});

rendering("a private CA of Redis, PostgreSQL and the key server is one value each", () => {
  const SENTINELS = "rediss+sentinel://:p@a:1,b:2/main/0?sentinel_password=s";
  const cas = { "tls.redis.existingSecret": "r", "tls.database.existingSecret": "d", "tls.jwks.existingSecret": "j" };
  const objects = renderChart({ ...OWN_UPSTREAMS, ...cas, ...KEYS, ...CLAIMS, "redis.url": SENTINELS });
  const files = ["TIMELINE_REDIS_TLS", "TIMELINE_DATABASE_TLS", "NODE_EXTRA_CA_CERTS"];
  const stores = ["database-ca", "redis-ca"];
  const expected = { users: stores, posts: stores, gateway: [...stores, "jwks-ca"].sort(), api: ["redis-ca"] };
  for (const [name, channels] of Object.entries(expected)) {
    const deployment = ofKind(objects, "Deployment").find((one) => role(one) === name) as Rendered;
    const env = environmentOf(deployment, objects);
    const mounted = files.flatMap((file) => env[file] ?? []).map((path) => path.split("/")[4]);
    expect([name, mounted.map((channel) => `${channel}-ca`).sort()]).toEqual([name, channels]);
    const { volumes } = deployment.spec.template.spec;
    for (const channel of mounted)
      expect(volumes.find((one) => one.name === `tls-${channel}`)?.secret?.secretName).toBe(channel?.[0]);
  }
});
