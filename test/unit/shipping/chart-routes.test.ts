import { expect } from "@jest/globals";
import { OWN_UPSTREAMS, ofKind, REQUIRED, rendering } from "./chart-cases.js";
import { type Rendered, renderChart, renderNotes, type Values } from "./helm.js";

const FROM = { "networkPolicy.apiFrom": [{ namespaceSelector: {} }] };
const INGRESS: Values = {
  ...REQUIRED,
  ...FROM,
  "ingress.enabled": true,
  "ingress.className": "nginx",
  "ingress.hosts": ["timeline.example"],
  "ingress.grpc": { enabled: true, className: "inside", hosts: ["grpc.example"] },
};
const PARENTS = [{ name: "public", namespace: "gateways" }];
const ROUTES: Values = {
  ...REQUIRED,
  ...FROM,
  "gatewayApi.http": { enabled: true, parentRefs: PARENTS, hostnames: ["timeline.example"], annotations: { a: "b" } },
  "gatewayApi.grpc": { enabled: true, parentRefs: PARENTS, labels: { side: "inside" } },
};

interface Route extends Omit<Rendered, "spec"> {
  readonly spec: {
    readonly ingressClassName?: string;
    readonly parentRefs?: unknown;
    readonly hostnames?: unknown;
    readonly rules: readonly Record<string, unknown>[];
  };
}

const routesOf = (values: Values, kind: string): Map<string, Route> => {
  const routes = ofKind(renderChart(values), kind) as unknown as Route[];
  return new Map(routes.map((one) => [one.metadata.labels["app.kubernetes.io/component"] as string, one]));
};

const apiService = (values: Values): Rendered | undefined =>
  ofKind(renderChart(values), "Service").find(({ metadata }) => metadata.name.endsWith("-api"));

rendering("gRPC has an Ingress of its own, which leads to the role api and no other", () => {
  const ingresses = routesOf(INGRESS, "Ingress");
  expect([...ingresses.keys()].sort()).toEqual(["api", "gateway"]);
  const { metadata, spec } = ingresses.get("api") as Route;
  expect(spec.ingressClassName).toBe("inside");
  const backend = { service: { name: apiService(INGRESS)?.metadata.name, port: { name: "grpc" } } };
  const paths = [{ path: "/avion.TimelineService", pathType: "Prefix", backend }];
  expect(spec.rules).toEqual([{ host: "grpc.example", http: { paths } }]);
  expect(metadata.annotations).toEqual({ "nginx.ingress.kubernetes.io/backend-protocol": "GRPC" });
  const shared = routesOf({ ...INGRESS, "ingress.grpc": { enabled: true, hosts: ["grpc.example"] } }, "Ingress");
  expect(shared.get("api")?.spec.ingressClassName).toBe("nginx");
});

rendering("ingress-nginx and Traefik speak TLS to pods that do, and show them a certificate", () => {
  const secured = { ...INGRESS, "tls.enabled": true, "tls.existingSecret": "between" };
  expect(routesOf(secured, "Ingress").get("api")?.metadata.annotations).toEqual({
    "nginx.ingress.kubernetes.io/backend-protocol": "GRPCS",
    "nginx.ingress.kubernetes.io/proxy-ssl-secret": "default/between",
    "nginx.ingress.kubernetes.io/proxy-ssl-verify": "on",
    "nginx.ingress.kubernetes.io/proxy-ssl-name": apiService(secured)?.metadata.name,
    "nginx.ingress.kubernetes.io/proxy-ssl-server-name": "on",
  });
  const scheme = "traefik.ingress.kubernetes.io/service.serversscheme";
  expect(apiService(secured)?.metadata.annotations).toEqual({ [scheme]: "https" });
  expect(apiService(INGRESS)?.metadata.annotations).toEqual({ [scheme]: "h2c" });
  expect(apiService(REQUIRED)?.metadata.annotations).toBeUndefined();
  const own = { ...INGRESS, "service.api.annotations": { [scheme]: "http", other: "x" } };
  expect(apiService(own)?.metadata.annotations).toEqual({ [scheme]: "http", other: "x" });
});

rendering("an HTTPRoute leads the paths of the gateway to its Service, without a timeout", () => {
  const { metadata, spec } = routesOf(ROUTES, "HTTPRoute").get("gateway") as Route;
  expect(metadata.annotations).toEqual({ a: "b" });
  expect([spec.parentRefs, spec.hostnames]).toEqual([PARENTS, ["timeline.example"]]);
  const values = ["/events", "/api/v1", "/openapi.json"];
  const service = ofKind(renderChart(ROUTES), "Service").find(({ metadata: of }) => of.name === metadata.name);
  expect(spec.rules).toEqual([
    {
      matches: values.map((value) => ({ path: { type: "PathPrefix", value } })),
      timeouts: { request: "0s" },
      backendRefs: [{ name: service?.metadata.name, port: service?.spec.ports[0]?.port }],
    },
  ]);
  const paths = { "ingress.paths": ["/a", { path: "/b", pathType: "Exact" }] };
  expect(routesOf({ ...ROUTES, ...paths }, "HTTPRoute").get("gateway")?.spec.rules[0]?.["matches"]).toEqual([
    { path: { type: "PathPrefix", value: "/a" } },
    { path: { type: "Exact", value: "/b" } },
  ]);
  expect(renderNotes(ROUTES)).toContain("https://timeline.example/events/timeline/home");
});

rendering("a GRPCRoute leads TimelineService to the role api", () => {
  const { metadata, spec } = routesOf(ROUTES, "GRPCRoute").get("api") as Route;
  expect(metadata.labels).toMatchObject({ side: "inside" });
  const { name } = apiService(ROUTES)?.metadata ?? {};
  const matches = [{ method: { service: "avion.TimelineService" } }];
  expect(spec).toEqual({ parentRefs: PARENTS, rules: [{ matches, backendRefs: [{ name, port: 50_051 }] }] });
});

rendering.each<[string, Values, RegExp]>([
  [
    "an Ingress to gRPC that the policy keeps out",
    { ...INGRESS, "networkPolicy.apiFrom": [] },
    /ingress\.grpc\.enabled needs networkPolicy\.apiFrom/,
  ],
  [
    "a route to gRPC that the policy keeps out",
    { ...ROUTES, "networkPolicy.apiFrom": [] },
    /gatewayApi\.grpc\.enabled needs networkPolicy\.apiFrom/,
  ],
  [
    "an Ingress to gRPC without hosts",
    { ...INGRESS, "ingress.grpc": { enabled: true } },
    /ingress\.grpc\.hosts is needed/,
  ],
  [
    "a route to gRPC without its role",
    { ...ROUTES, "roles.api.enabled": false },
    /gatewayApi\.grpc\.enabled needs the role api/,
  ],
  [
    "a route without its role",
    { ...ROUTES, "roles.gateway.enabled": false },
    /gatewayApi\.http\.enabled needs the role gateway/,
  ],
  [
    "a route without a Gateway",
    { ...ROUTES, "gatewayApi.http": { enabled: true } },
    /gatewayApi\.http\.parentRefs is needed/,
  ],
])("%s is refused before anything is installed", (_name, values, why) => {
  expect(() => renderChart(values)).toThrow(why);
});

rendering("routes to gRPC are taken where there are no policies", () => {
  const open = { "networkPolicy.apiFrom": [], "networkPolicy.enabled": false };
  for (const values of [INGRESS, ROUTES]) expect(() => renderChart({ ...values, ...open })).not.toThrow();
  expect(routesOf(OWN_UPSTREAMS, "GRPCRoute").size).toBe(0);
});
