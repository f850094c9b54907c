import { expect } from "@jest/globals";
import { isPublicAddress } from "../../../src/platform/http/public-addresses.js";
import { configOf, EVERYTHING, includes, OWN_UPSTREAMS, ofKind, REQUIRED, rendering, role } from "./chart-cases.js";
import { type Environment, PORTS } from "./files.js";
import { type Rendered, renderChart, type Values } from "./helm.js";

const CALLERS = ["api", "bridge", "fanout", "analysis", "posts"];

rendering.each<[string, Values, string[]]>([
  ["pods themselves, by default", OWN_UPSTREAMS, ["-users-headless", "-posts-headless"]],
  ["a Service without a headless one too", EVERYTHING, ["-users", "-posts-headless"]],
])("whoever calls upstreams finds the release's own: %s", (_name, values, suffixes) => {
  const objects = renderChart(values);
  const callers = ofKind(objects, "Deployment").filter((one) => CALLERS.includes(role(one)));
  expect(callers).toHaveLength(values === EVERYTHING ? 5 : 4);
  for (const caller of callers) {
    const config = configOf(caller, objects);
    const addresses = [config.upstreams.userServiceAddr, config.upstreams.postServiceAddr] as [string, string];
    for (const [index, address] of addresses.entries()) {
      const [host = "", port] = address.split(":");
      const service = ofKind(objects, "Service").find(({ metadata }) => metadata.name === host) as Rendered;
      expect([host.endsWith(suffixes[index] as string), role(service)]).toEqual([true, ["users", "posts"][index]]);
      expect(service.spec.ports.map((one) => String(one.port))).toEqual([port]);
    }
  }
});

rendering("named upstreams override those of the release, and a bridge runs without upstreams", () => {
  const addressesOf = (values: Values): unknown[] => {
    const objects = renderChart(values);
    const bridge = ofKind(objects, "Deployment").find((one) => role(one) === "bridge") as Rendered;
    const config = configOf(bridge, objects);
    return [config.upstreams.userServiceAddr, config.upstreams.postServiceAddr];
  };
  expect(addressesOf({ ...OWN_UPSTREAMS, "upstreams.userService": "elsewhere:1", fullnameOverride: "x" })).toEqual([
    "elsewhere:1",
    `x-posts-headless:${PORTS.grpc}`,
  ]);
  const alone = { "roles.api.enabled": false, "roles.fanout.enabled": false, "upstreams.userService": "" };
  expect(addressesOf({ ...REQUIRED, ...alone })).toEqual([undefined, undefined]);
});

rendering("the gateway serves pages of the release's own api, or of the one that is named, with their drops", () => {
  const upstreamsOf = (values: Values) => {
    const objects = renderChart({ ...OWN_UPSTREAMS, fullnameOverride: "x", ...values });
    const gateway = ofKind(objects, "Deployment").find((one) => role(one) === "gateway") as Rendered;
    return configOf(gateway, objects).upstreams;
  };
  const addressOf = (values: Values): unknown => upstreamsOf(values).timelineServiceAddr;
  const { userServiceAddr, postServiceAddr } = upstreamsOf({});
  expect([userServiceAddr, postServiceAddr]).toEqual(
    ["users", "posts"].map((name) => `x-${name}-headless:${PORTS.grpc}`),
  );
  expect(upstreamsOf({ "upstreams.postService": "elsewhere:1" }).postServiceAddr).toBe("elsewhere:1");
  expect(addressOf({})).toBe(`x-api:${PORTS.grpc}`);
  expect(addressOf({ "upstreams.timelineService": "elsewhere:1" })).toBe("elsewhere:1");
  expect(addressOf({ "roles.api.enabled": false })).toBeUndefined();
  const notifications = (values: Values): unknown =>
    upstreamsOf({ "roles.notifications.enabled": true, ...values }).notificationServiceAddr;
  expect(notifications({})).toBe(`x-notifications:${PORTS.grpc}`);
  expect(notifications({ "upstreams.notificationService": "elsewhere:2" })).toBe("elsewhere:2");
  expect(notifications({ "roles.notifications.enabled": false })).toBeUndefined();
  // The gateway could not show the certificate that api asks for.
  const external = { "upstreams.userService": "u:1", "upstreams.postService": "p:1" };
  const own = { "roles.users.enabled": false, "roles.posts.enabled": false };
  const half = { "tls.grpc.existingSecret": "t", "tls.grpc.cert": "c", "tls.grpc.key": "k" };
  expect(addressOf({ ...external, ...own, ...half })).toBeUndefined();
  expect(notifications({ ...external, ...own, ...half })).toBeUndefined();
});

rendering("network policies admit the release's own callers and the peers that are named", () => {
  const objects = renderChart(EVERYTHING);
  const policyOf = (name: string): Rendered =>
    ofKind(objects, "NetworkPolicy").find((one) => role(one) === name) as Rendered;
  const podOf = (name: string): Environment =>
    ofKind(objects, "Deployment").find((one) => role(one) === name)?.spec.template.metadata.labels as Environment;
  const fits = (labels: Environment, peers: Rendered["spec"]["ingress"][0]["from"] = []): boolean =>
    peers.some(
      ({ podSelector: { matchLabels = {}, matchExpressions = [] } = {} }) =>
        includes(labels, matchLabels) &&
        matchExpressions.every(({ key, values }) => values.includes(labels[key] as string)),
    );
  for (const name of ["users", "posts"]) {
    const [calls] = policyOf(name).spec.ingress;
    expect(calls?.ports.map(({ port }) => port)).toEqual(["grpc"]);
    for (const caller of CALLERS) {
      expect(fits(podOf(caller), calls?.from)).toBe(true);
      const out = policyOf(caller).spec.egress.filter(({ to }) => fits(podOf(name), to));
      expect(out.flatMap(({ ports }) => ports.map(({ port }) => port))).toEqual([PORTS.grpc]);
    }
    expect(fits({ app: "writer" }, calls?.from)).toBe(name === "posts");
    // It asks for the drops of pages, and whom viewers of local and global hide.
    expect(fits(podOf("gateway"), calls?.from)).toBe(true);
  }
  for (const served of ["api", "notifications"]) {
    expect(fits(podOf("gateway"), policyOf(served).spec.ingress[0]?.from)).toBe(true);
    expect(policyOf("gateway").spec.egress.some(({ to }) => fits(podOf(served), to))).toBe(true);
  }
  expect(fits({ app: "reader" }, policyOf("posts").spec.ingress[0]?.from)).toBe(false);
});

rendering("posts alone reach public addresses, and only where they fetch", () => {
  const reached = (values: Values): string[] =>
    ofKind(renderChart({ ...EVERYTHING, ...values }), "NetworkPolicy").flatMap((policy) =>
      policy.spec.egress.flatMap(({ ports, to = [] }) =>
        to.flatMap(({ ipBlock }) =>
          ipBlock ? ports.map(({ port }) => `${role(policy)} ${ipBlock.cidr}:${port}`) : [],
        ),
      ),
    );
  const everywhere = ["posts 0.0.0.0/0:443", "posts 2000::/3:443"];
  expect(reached({})).toEqual([]);
  expect(reached({ "config.TIMELINE_FETCH": "on" })).toEqual(everywhere);
  expect(reached({ "roles.posts.config.TIMELINE_FETCH": "on" })).toEqual(everywhere);
  expect(reached({ "config.TIMELINE_FETCH": "on", "roles.posts.config.TIMELINE_FETCH": "off" })).toEqual([]);
  const [posts] = ofKind(renderChart({ ...EVERYTHING, "config.TIMELINE_FETCH": "on" }), "NetworkPolicy").flatMap(
    ({ spec }) => spec.egress.flatMap(({ to = [] }) => to.flatMap(({ ipBlock }) => ipBlock ?? [])),
  );
  const closed = (posts?.except ?? []).map((range) => range.split("/")[0] as string);
  expect(closed).toContain("169.254.0.0");
  expect(closed.filter(isPublicAddress)).toEqual([]);
});

rendering.each<[string, Values, RegExp]>([
  [
    "no database for users",
    { "roles.users.enabled": true },
    /database\.url or database\.existingSecret\.name is needed/,
  ],
  [
    "no database for posts",
    { "roles.posts.enabled": true },
    /database\.url or database\.existingSecret\.name is needed/,
  ],
  ["several databases", { "database.url": "postgres://a/x,postgres://b/x" }, /database\/url/],
  [
    "own upstreams that are called without TLS",
    { ...OWN_UPSTREAMS, "tls.grpc": { existingSecret: "some" } },
    /go together/,
  ],
  [
    "own upstreams that serve without TLS",
    { ...OWN_UPSTREAMS, "tls.upstream": { existingSecret: "some" } },
    /go together/,
  ],
  [
    "own upstreams that ask for a certificate nobody shows",
    {
      ...OWN_UPSTREAMS,
      "tls.grpc": { existingSecret: "grpc", ca: "ca.crt" },
      "tls.upstream": { existingSecret: "calls" },
    },
    /tls\.upstream\.cert and tls\.upstream\.key are needed/,
  ],
])("%s is refused before anything is installed", (_name, values, why) => {
  expect(() => renderChart({ ...REQUIRED, ...values })).toThrow(why);
});
