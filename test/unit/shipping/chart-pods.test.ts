import { expect } from "@jest/globals";
import { containerOf, EVERYTHING, ofKind, REQUIRED, rendering, role } from "./chart-cases.js";
import { type Rendered, renderChart, renderNotes, type Values } from "./helm.js";

const podsOf = (values: Values) =>
  new Map(
    ofKind(renderChart({ ...REQUIRED, ...values }), "Deployment").map((one) => [
      role(one),
      { ...one.spec.template.spec, own: containerOf(one) } as Rendered["spec"]["template"]["spec"] &
        Record<string, unknown> & { own: ReturnType<typeof containerOf> & Record<string, unknown> },
    ]),
  );

const named = (name: string) => ({ name });

rendering("every pod takes volumes, mounts, containers, env sources and host aliases; a role, further ones", () => {
  const lists = (name: string): Values => ({
    extraVolumes: [{ ...named(name), emptyDir: {} }],
    extraVolumeMounts: [{ ...named(name), mountPath: `/${name}` }],
    initContainers: [named(`init-${name}`)],
    extraContainers: [named(`beside-${name}`)],
    extraEnvFrom: [{ secretRef: named(name) }],
    extraEnv: [{ name: `OTEL_${name.toUpperCase()}`, value: name }],
    hostAliases: [{ ip: "10.0.0.1", hostnames: [name] }],
  });
  const ofRole = Object.entries(lists("some")).map(([list, value]) => [`roles.fanout.${list}`, value]);
  for (const [name, pod] of podsOf({ ...lists("all"), ...Object.fromEntries(ofRole) })) {
    const expected = name === "fanout" ? ["all", "some"] : ["all"];
    const { volumes, own, initContainers, containers, hostAliases } = pod;
    const ours = (all: readonly { name: string }[]) =>
      all.map((one) => one.name).filter((one) => /all$|some$/i.test(one));
    expect(ours(volumes)).toEqual(expected);
    expect(ours(own.volumeMounts)).toEqual(expected);
    expect(ours(initContainers as [])).toEqual(expected.map((one) => `init-${one}`));
    expect(ours(containers)).toEqual(expected.map((one) => `beside-${one}`));
    expect(ours(own.env)).toEqual(expected.map((one) => `OTEL_${one.toUpperCase()}`));
    expect(own.envFrom.slice(1)).toEqual(expected.map((one) => ({ secretRef: named(one) })));
    expect(hostAliases).toEqual(expected.map((one) => ({ ip: "10.0.0.1", hostnames: [one] })));
  }
});

rendering("security contexts and DNS are set for all, and by field or whole for a role", () => {
  const pods = podsOf({
    dnsPolicy: "None",
    dnsConfig: { nameservers: ["10.0.0.10"] },
    "roles.gateway.dnsConfig": { nameservers: ["10.0.0.11"] },
    "roles.gateway.podSecurityContext": { sysctls: [{ name: "net.ipv4.tcp_retries2", value: "8" }] },
    "roles.gateway.securityContext": { readOnlyRootFilesystem: false },
  });
  const { dnsPolicy, dnsConfig, securityContext, own } = pods.get("gateway") ?? ({} as never);
  expect({ dnsPolicy, dnsConfig }).toEqual({ dnsPolicy: "None", dnsConfig: { nameservers: ["10.0.0.11"] } });
  expect(securityContext).toMatchObject({ runAsNonRoot: true, sysctls: [{ value: "8" }] });
  expect(own.securityContext).toMatchObject({ readOnlyRootFilesystem: false, allowPrivilegeEscalation: false });
  const api = pods.get("api");
  expect(api?.["dnsConfig"]).toEqual({ nameservers: ["10.0.0.10"] });
  expect(api?.securityContext).not.toHaveProperty("sysctls");
  expect(api?.own.securityContext).toMatchObject({ readOnlyRootFilesystem: true });
  expect(podsOf({}).get("api")).not.toHaveProperty("dnsPolicy");
});

rendering("Secrets of images are named, or objects with a name", () => {
  const pod = podsOf({ imagePullSecrets: ["one", { name: "two" }] }).get("api");
  expect(pod?.["imagePullSecrets"]).toEqual([named("one"), named("two")]);
});

rendering("Services take the usual fields of Kubernetes", () => {
  const fields = {
    loadBalancerSourceRanges: ["10.0.0.0/8"],
    externalTrafficPolicy: "Local",
    ipFamilyPolicy: "SingleStack",
  };
  for (const name of ["gateway", "api"]) {
    const given = { ...fields, type: "LoadBalancer", nodePort: 30_080, labels: { team: "edge" } };
    const values = Object.fromEntries(
      Object.entries(given).map(([field, value]) => [`service.${name}.${field}`, value]),
    );
    const found = ofKind(renderChart({ ...REQUIRED, ...values }), "Service").find((one) => role(one) === name);
    expect(found?.spec).toMatchObject({ ...fields, type: "LoadBalancer", ports: [{ nodePort: 30_080 }] });
    expect(found?.metadata.labels).toMatchObject({ team: "edge", "app.kubernetes.io/component": name });
  }
});

rendering("an Ingress takes hosts and paths as names or as objects, and labels", () => {
  const ingress = {
    "ingress.hosts": ["a.example", { host: "b.example", paths: ["/events", { path: "/api", pathType: "Exact" }] }],
    "ingress.labels": { side: "edge" },
  };
  const objects = renderChart({ ...EVERYTHING, ...ingress });
  const [found] = ofKind(objects, "Ingress") as unknown as [
    { metadata: Rendered["metadata"]; spec: { rules: { host: string; http: { paths: Record<string, string>[] } }[] } },
  ];
  const paths = found.spec.rules.map(({ host, http }) => [
    host,
    http.paths.map((one) => [one["path"], one["pathType"]]),
  ]);
  expect(paths).toEqual([
    [
      "a.example",
      [
        ["/events", "Prefix"],
        ["/api/v1", "Prefix"],
        ["/openapi.json", "Prefix"],
      ],
    ],
    [
      "b.example",
      [
        ["/events", "Prefix"],
        ["/api", "Exact"],
      ],
    ],
  ]);
  expect(found.metadata.labels).toMatchObject({ side: "edge" });
  const notes = renderNotes({ ...EVERYTHING, ...ingress });
  for (const host of ["a.example", "b.example"]) expect(notes).toContain(`https://${host}/events`);
});
