import { expect, test } from "@jest/globals";
import { REMOVED } from "../../../src/roles/config/names.js";
import {
  configOf,
  containerOf,
  EVERYTHING,
  environmentOf,
  includes,
  OWN_UPSTREAMS,
  ofKind,
  REQUIRED,
  rendering,
  role,
  SECRET,
  servesGrpc,
  WITH_EXISTING_SECRETS,
} from "./chart-cases.js";
import { CLOSE_MARGIN_MS, type Environment, NAMES, PORTS, readText } from "./files.js";
import { type Rendered, renderChart, renderText, type Values } from "./helm.js";

const ALL = ["analysis", "api", "bridge", "fanout", "gateway", "notifications", "ops", "posts", "rewards", "users"];
const CASES: [string, Values, string[]][] = [
  ["what is required", REQUIRED, ["api", "bridge", "fanout", "gateway"]],
  ["existing Secrets", WITH_EXISTING_SECRETS, ["api", "bridge", "fanout", "gateway", "users"]],
  ["upstreams of its own", OWN_UPSTREAMS, ["api", "bridge", "fanout", "gateway", "posts", "users"]],
  ["everything switched on", EVERYTHING, ALL],
  [
    "a key set and two roles",
    {
      ...REQUIRED,
      "jwt.secret": "",
      "jwt.jwksUrl": "https://login.example/jwks.json",
      "jwt.issuer": "https://login.example",
      "jwt.audience": "timeline",
      "roles.api.enabled": false,
      "roles.fanout.enabled": false,
    },
    ["bridge", "gateway"],
  ],
];

const checksTokens = (deployment: Rendered): boolean => ["gateway", "ops"].includes(role(deployment));
const portsOf = (deployment: Rendered) => ({
  http: PORTS.http,
  ...(servesGrpc(deployment) ? { grpc: PORTS.grpc } : {}),
  ...(role(deployment) === "ops" ? { ops: PORTS.ops } : {}),
});
const STORING = ["users", "posts", "analysis", "rewards", "notifications"];
const databaseGiven = (values: Values): boolean => "database.url" in values || "database.existingSecret" in values;

for (const [name, values, roles] of CASES) {
  const render = (): Rendered[] => renderChart(values);

  rendering(`${name}: each role has a deployment whose environment the service takes`, () => {
    const objects = render();
    const deployments = ofKind(objects, "Deployment");
    expect(deployments.map(role).sort()).toEqual(roles);
    for (const deployment of deployments) {
      const config = configOf(deployment, objects);
      expect(config.process.roles).toEqual([role(deployment)]);
      expect(config.process.podName).toBe("pod-0");
      expect(config.gateway.jwtSecrets !== undefined).toBe(checksTokens(deployment) && !!secretGiven(values));
      const reads = role(deployment) === "gateway" && databaseGiven(values);
      expect(config.database.url !== undefined).toBe(STORING.includes(role(deployment)) || reads);
      const { terminationGracePeriodSeconds, enableServiceLinks } = deployment.spec.template.spec;
      const [sleep, seconds] = containerOf(deployment).lifecycle.preStop.exec.command;
      expect(sleep).toBe("sleep");
      const leaving = Number(seconds) * 1000 + config.process.shutdownGraceMs + CLOSE_MARGIN_MS;
      expect(terminationGracePeriodSeconds * 1000).toBeGreaterThan(leaving);
      expect(enableServiceLinks).toBe(false);
    }
  });

  rendering(`${name}: probes ask ports the container has, and those are the service's`, () => {
    for (const deployment of ofKind(render(), "Deployment")) {
      const container = containerOf(deployment);
      const ports = Object.fromEntries(container.ports.map((port) => [port.name, port.containerPort]));
      expect(ports).toEqual(portsOf(deployment));
      const { startupProbe, livenessProbe, readinessProbe } = container;
      for (const probe of [startupProbe, livenessProbe, readinessProbe])
        expect(ports).toHaveProperty(probe.httpGet.port);
      expect([startupProbe, livenessProbe, readinessProbe].map(({ httpGet }) => httpGet.path)).toEqual([
        "/healthz",
        "/healthz",
        "/readyz",
      ]);
    }
  });

  rendering(`${name}: selectors match the pods they are meant for`, () => {
    const objects = render();
    const deployments = ofKind(objects, "Deployment");
    const podsOf = (selector: Environment): Rendered[] =>
      deployments.filter(({ spec }) => includes(spec.template.metadata.labels, selector));
    for (const { spec, metadata } of deployments) {
      expect(podsOf(spec.selector.matchLabels).map((found) => found.metadata.name)).toEqual([metadata.name]);
      for (const { labelSelector } of spec.template.spec.topologySpreadConstraints) {
        expect(labelSelector).toEqual(spec.selector);
      }
    }
    for (const service of ofKind(objects, "Service")) {
      const found = podsOf(service.spec.selector as unknown as Environment);
      expect(found.map(role)).toEqual(role(service) === "metrics" ? roles : [role(service)]);
      for (const { targetPort } of service.spec.ports) {
        for (const pod of found) expect(containerOf(pod).ports.map((port) => port.name)).toContain(targetPort);
      }
    }
    for (const budget of ofKind(objects, "PodDisruptionBudget")) {
      expect(podsOf(budget.spec.selector.matchLabels).map(role)).toEqual([role(budget)]);
    }
    expect(ofKind(objects, "PodDisruptionBudget").map(role).sort()).toEqual(roles);
  });

  rendering(`${name}: mounted files have their volume, and the environment names only mounted ones`, () => {
    const objects = render();
    for (const deployment of ofKind(objects, "Deployment")) {
      const { volumeMounts } = containerOf(deployment);
      const { volumes } = deployment.spec.template.spec;
      expect(volumeMounts.map((mount) => mount.name).sort()).toEqual(volumes.map((volume) => volume.name).sort());
      for (const [variable, value] of Object.entries(environmentOf(deployment, objects))) {
        if (!value.startsWith("/")) continue;
        const mount = volumeMounts.find(({ mountPath }) => `${value}/`.startsWith(`${mountPath}/`));
        expect({ variable, mount }).toMatchObject({ variable, mount: { readOnly: true } });
      }
      for (const { secret } of volumes) {
        const own = ofKind(objects, "Secret").find(({ metadata }) => metadata.name === secret?.secretName);
        if (own) for (const { key } of secret?.items ?? []) expect(own.data).toHaveProperty([key]);
      }
    }
  });

  rendering(`${name}: pods run without privileges`, () => {
    const objects = render();
    for (const deployment of ofKind(objects, "Deployment")) {
      const pod = deployment.spec.template.spec;
      expect(pod).toMatchObject({
        automountServiceAccountToken: false,
        securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
      });
      expect(containerOf(deployment)).toMatchObject({
        args: ["serve"],
        image: expect.stringMatching(/^avion-timeline:\d/),
        securityContext: {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ["ALL"] },
        },
        resources: { requests: { cpu: expect.anything() }, limits: { memory: expect.anything() } },
      });
    }
    expect(ofKind(objects, "ServiceAccount").map((account) => account.automountServiceAccountToken)).toEqual([false]);
  });

  rendering(`${name}: objects have distinct names that Kubernetes accepts`, () => {
    const names = render().map(({ kind, metadata }) => `${kind}/${metadata.name}`);
    expect(new Set(names).size).toBe(names.length);
    for (const full of names) expect(full.split("/")[1]).toMatch(/^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/);
  });
}

function secretGiven(values: Values): unknown {
  return values["jwt.secret"] || values["jwt.existingSecret"];
}

rendering("optional objects are rendered only where they are switched on", () => {
  const kinds = (values: Values): string[] => [...new Set(renderChart(values).map(({ kind }) => kind))].sort();
  const plain = [
    ...["ConfigMap", "CronJob", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret", "Service"],
    "ServiceAccount",
  ];
  expect(kinds(REQUIRED)).toEqual(plain);
  expect(kinds({ ...REQUIRED, "networkPolicy.enabled": false })).not.toContain("NetworkPolicy");
  const optional = ["HorizontalPodAutoscaler", "Ingress", "ServiceMonitor"];
  expect(kinds(EVERYTHING)).toEqual([...plain, ...optional].sort());
  expect(kinds(WITH_EXISTING_SECRETS)).toEqual(plain.filter((kind) => kind !== "Secret"));
  expect(kinds(OWN_UPSTREAMS)).toEqual(plain);
});

rendering("a deployment with an autoscaler has no fixed replicas, and the autoscaler names it", () => {
  const objects = renderChart(EVERYTHING);
  const deployments = ofKind(objects, "Deployment").map(({ metadata }) => metadata.name);
  const targets = ofKind(objects, "HorizontalPodAutoscaler").map(({ spec }) => spec.scaleTargetRef.name);
  expect(targets.sort()).toEqual(deployments.sort());
  expect(ofKind(objects, "Deployment").filter(({ spec }) => spec.replicas !== undefined)).toEqual([]);
  expect(ofKind(renderChart(REQUIRED), "Deployment").map(({ spec }) => spec.replicas)).toEqual([2, 2, 2, 2]);
});

rendering("roles scale by their load too where an adapter serves it, and by KEDA where it is asked for", () => {
  const loads = {
    bridge: 0,
    fanout: 2_000,
    api: 0,
    gateway: 7_000,
    users: 5_000,
    posts: 5_000,
    analysis: 20,
    rewards: 0,
    notifications: 5_000,
  };
  const ofRole = (signals: Values, kind: string) =>
    Object.fromEntries(
      ofKind(renderChart({ ...EVERYTHING, ...signals }), kind).map(({ metadata, spec }) => [
        metadata.labels["app.kubernetes.io/component"] as string,
        spec,
      ]),
    );
  const external = ofRole({ "autoscaling.signals": "external" }, "HorizontalPodAutoscaler");
  const keda = { "autoscaling.signals": "keda", "autoscaling.prometheusUrl": "http://prometheus:9090" };
  const asked = ofRole(keda, "ScaledObject");
  const plain = ofRole(keda, "HorizontalPodAutoscaler");
  for (const [role, load] of Object.entries(loads)) {
    const target = { type: "AverageValue", averageValue: String(load) };
    const metric = {
      name: "timeline_scaling_load",
      selector: { matchLabels: { namespace: "default", release: "timeline", role } },
    };
    expect(external[role]?.metrics.slice(1)).toEqual(load ? [{ type: "External", external: { metric, target } }] : []);
    expect([role, asked[role] !== undefined, plain[role] === undefined]).toEqual([role, load > 0, load > 0]);
    const query = `timeline_scaling_load{namespace="default",release="timeline",role="${role}"}`;
    const metadata = { serverAddress: "http://prometheus:9090", query, threshold: String(load) };
    if (load) expect(asked[role]?.triggers[1]).toEqual({ type: "prometheus", metricType: "AverageValue", metadata });
  }
  expect(() => renderChart({ ...EVERYTHING, "autoscaling.signals": "keda" })).toThrow(/prometheusUrl/);
});

rendering("pods that are not ready hold up no drain, and the CPU of sidecars scales nothing", () => {
  const objects = renderChart(EVERYTHING);
  const policies = ofKind(objects, "PodDisruptionBudget").map(({ spec }) => spec.unhealthyPodEvictionPolicy);
  expect(new Set(policies)).toEqual(new Set(["AlwaysAllow"]));
  const scalers = ofKind(objects, "HorizontalPodAutoscaler");
  expect(scalers.length).toBeGreaterThan(3);
  for (const scaler of scalers) {
    const [{ containerResource }] = scaler.spec.metrics as [{ containerResource: object }];
    expect(containerResource).toMatchObject({ name: "cpu", container: role(scaler) });
  }
  // Kubernetes before 1.27 has neither.
  const older = renderText(EVERYTHING, { kubernetes: "1.26.0" });
  expect(older).not.toMatch(/ContainerResource|unhealthyPodEvictionPolicy/);
  expect(older).toMatch(/type: Resource/);
});

rendering("the ingress routes only the events and the API, without buffering", () => {
  const objects = renderChart(EVERYTHING);
  const [ingress] = ofKind(objects, "Ingress") as [Rendered];
  expect(ingress.metadata.annotations).toMatchObject({ "nginx.ingress.kubernetes.io/proxy-buffering": "off" });
  expect(ingress.spec.rules).toHaveLength(1);
  const paths = ingress.spec.rules[0]?.http.paths ?? [];
  const [path] = paths;
  expect(paths.map((one) => one.path)).toEqual(["/events", "/api/v1", "/openapi.json"]);
  expect(path).toMatchObject({ path: "/events", pathType: "Prefix" });
  const service = ofKind(objects, "Service").find(({ metadata }) => metadata.name === path?.backend.service.name);
  expect(service?.spec.ports.map((port) => port.name)).toContain(path?.backend.service.port.name);
});

rendering("a headless Service exists for clients that balance by themselves", () => {
  const headless = ofKind(renderChart(EVERYTHING), "Service").filter(({ metadata }) =>
    metadata.name.endsWith("-api-headless"),
  );
  expect(headless.map(({ spec }) => [spec.clusterIP, spec.ports[0]?.port])).toEqual([["None", PORTS.grpc]]);
});

rendering("the monitor selects one Service and its port", () => {
  const objects = renderChart(EVERYTHING);
  const [monitor] = ofKind(objects, "ServiceMonitor") as [Rendered];
  const found = ofKind(objects, "Service").filter(({ metadata }) =>
    includes(metadata.labels, monitor.spec.selector.matchLabels),
  );
  expect(found).toHaveLength(1);
  expect(found[0]?.spec.ports.map((port) => port.name)).toEqual(monitor.spec.endpoints.map(({ port }) => port));
  expect(monitor.metadata.labels["release"]).toBe("prometheus");
  expect(monitor.spec.endpoints[0]?.relabelings.map(({ targetLabel }) => targetLabel)).toEqual(["release", "role"]);
});

rendering("network policies close every role except its own ports", () => {
  const objects = renderChart(EVERYTHING);
  // The job of the audit has one, too.
  const policies = ofKind(objects, "NetworkPolicy").filter((one) => role(one) !== "audit");
  expect(policies.map(role).sort()).toEqual(ALL);
  for (const policy of policies) {
    const deployment = ofKind(objects, "Deployment").find((one) => role(one) === role(policy)) as Rendered;
    expect(policy.spec.podSelector).toEqual(deployment.spec.selector);
    const ports = policy.spec.ingress.flatMap((rule) => rule.ports.map(({ port }) => port));
    expect(containerOf(deployment).ports.map(({ name }) => name)).toEqual(expect.arrayContaining(ports));
    expect(policy.spec.policyTypes).toEqual(["Ingress", "Egress"]);
  }
});

rendering("a change of the configuration starts new pods", () => {
  const sums = (values: Values) =>
    ofKind(renderChart(values), "Deployment").map(
      ({ spec }) => (spec.template.metadata as Rendered["metadata"]).annotations,
    );
  expect(sums({ ...REQUIRED, "config.TIMELINE_MAX_ENTRIES": "500" })).not.toEqual(sums(REQUIRED));
  expect(sums({ ...REQUIRED, "nats.url": "nats://other:4222" })).not.toEqual(sums(REQUIRED));
});

rendering(
  "a strategy that replaces all pods at once has no bounds of a rolling update, which Kubernetes refuses",
  () => {
    const strategies = (values: Values): unknown[] =>
      ofKind(renderChart(values), "Deployment").map((one) => one.spec.strategy);
    for (const strategy of strategies({ ...REQUIRED, "strategy.type": "Recreate" }))
      expect(strategy).toEqual({ type: "Recreate" });
    const rolling = { type: "RollingUpdate", rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } };
    for (const strategy of strategies(REQUIRED)) expect(strategy).toEqual(rolling);
  },
);

rendering("a role's own priority class overrides that of all roles", () => {
  const classes = ofKind(renderChart(EVERYTHING), "Deployment").map((one) => [
    role(one),
    one.spec.template.spec.priorityClassName,
  ]);
  expect(Object.fromEntries(classes)).toEqual({
    analysis: "steady",
    api: "steady",
    bridge: "steady",
    fanout: "steady",
    gateway: "people-first",
    notifications: "steady",
    ops: "steady",
    posts: "steady",
    rewards: "steady",
    users: "steady",
  });
});

test("the schema refuses the settings of earlier versions", () => {
  const schema = JSON.parse(readText("charts/avion-timeline/values.schema.json")) as {
    definitions: { config: { propertyNames: { allOf: [{ not: { enum: string[] } }] } } };
  };
  expect(schema.definitions.config.propertyNames.allOf[0].not.enum).toEqual(REMOVED);
});

rendering("variables that the chart sets are refused in config, all others are accepted", () => {
  const schema = JSON.parse(readText("charts/avion-timeline/values.schema.json")) as {
    definitions: { config: { propertyNames: { not: { enum: string[] } } } };
  };
  const managed = schema.definitions.config.propertyNames.not.enum;
  const containers = ofKind(
    renderChart({ ...EVERYTHING, extraEnv: [], "roles.fanout.config": {}, "roles.gateway.config": {} }),
    "Deployment",
  );
  const set = containers.flatMap((one) => containerOf(one).env.map(({ name }) => name));
  const own = new Set(set.filter((name) => name.startsWith("TIMELINE_") && !name.startsWith("TIMELINE_S")));
  expect([...own].filter((name) => !managed.includes(name))).toEqual([]);
  expect(managed.filter((name) => !NAMES.has(name))).toEqual([]);
});

rendering.each<[string, Values, RegExp]>([
  ["no Redis", { "redis.url": "" }, /redis\.url or redis\.existingSecret\.name is needed/],
  ["no NATS", { "nats.url": "" }, /nats\.url or nats\.existingSecret\.name is needed/],
  ["no UserService", { "upstreams.userService": "" }, /upstreams\.userService is needed/],
  ["no PostService", { "upstreams.postService": "" }, /upstreams\.postService is needed/],
  ["no key for tokens", { "jwt.secret": "" }, /jwt\.secret, jwt\.existingSecret\.name or jwt\.jwksUrl is needed/],
  [
    "two kinds of keys for tokens",
    { "jwt.jwksUrl": "https://login.example/keys" },
    /jwt\.jwksUrl excludes jwt\.secret/,
  ],
  ["a short secret", { "jwt.secret": "short" }, /jwt\/secret/],
  ["a URL of another protocol", { "redis.url": "http://redis" }, /redis\/url/],
  ["sentinels without the name of a master", { "redis.url": "redis+sentinel://a:1,b:2" }, /redis\/url/],
  ["an address without a port", { "upstreams.userService": "users" }, /upstreams\/userService/],
  ["a secret among the configuration", { "config.TIMELINE_JWT_SECRET": SECRET }, /TIMELINE_JWT_SECRET/],
  ["a setting of an earlier version", { "config.TIMELINE_REBUILD_QUEUE": "5" }, /TIMELINE_REBUILD_QUEUE/],
  ["a value nobody reads", { "roles.api.replica": 3 }, /replica/],
  ["a certificate without its key", { "tls.nats": { cert: "tls.crt" } }, /tls\/nats\/key/],
  [
    "an Ingress without its role",
    { "ingress.enabled": true, "ingress.hosts": ["a.example"], "roles.gateway.enabled": false },
    /ingress\.enabled needs the role gateway/,
  ],
  [
    "an autoscaler with fewer pods at most than at least",
    { "autoscaling.enabled": true, "roles.api.autoscaling.minReplicas": 20 },
    /roles\.api\.autoscaling\.maxReplicas must not be below minReplicas/,
  ],
  ["an Ingress without hosts", { "ingress.enabled": true }, /ingress\.hosts is needed/],
])("%s is refused before anything is installed", (_name, values, why) => {
  expect(() => renderChart({ ...REQUIRED, ...values })).toThrow(why);
});
