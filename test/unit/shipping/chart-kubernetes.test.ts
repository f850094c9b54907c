import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "@jest/globals";
import { configOf, EVERYTHING, OWN_UPSTREAMS, ofKind, REQUIRED, role, WITH_EXISTING_SECRETS } from "./chart-cases.js";
import { inRepository, readYaml } from "./files.js";
import { HELM, KUBECONFORM, renderChart, renderText, type Values, withChart } from "./helm.js";

const checking = HELM && KUBECONFORM ? test : test.skip;
if (!KUBECONFORM)
  console.warn("no kubeconform on PATH and none named by KUBECONFORM: objects are not compared with schemas");

const EXAMPLES = "charts/avion-timeline/examples";
/** The oldest version that Chart.yaml admits, and a new one. */
const VERSIONS = ["1.25.0", "1.37.0"];
/** Kinds of operators and of the Gateway API, whose schemas no registry has. */
const OTHERS = "ScaledObject,ServiceMonitor,PrometheusRule,Certificate,HTTPRoute,GRPCRoute";
const JOBS: Values = {
  "audit.enabled": true,
  "audit.fix": true,
  "backupCheck.enabled": true,
  "backupCheck.volume": { persistentVolumeClaim: { claimName: "backups", readOnly: true } },
};
const CASES: readonly [string, Values][] = [
  ["what is required", REQUIRED],
  ["existing Secrets", WITH_EXISTING_SECRETS],
  ["upstreams of its own", OWN_UPSTREAMS],
  ["everything switched on", { ...EVERYTHING, ...JOBS }],
  [
    "gRPC from outside",
    {
      ...REQUIRED,
      "networkPolicy.apiFrom": [{ podSelector: {} }],
      "ingress.grpc": {
        enabled: true,
        hosts: ["grpc.example"],
        tls: [{ secretName: "grpc", hosts: ["grpc.example"] }],
      },
    },
  ],
  ["external metrics", { ...EVERYTHING, "autoscaling.signals": "external" }],
];
const valuesOf = (example: string): Values => readYaml(`${EXAMPLES}/${example}.yaml`) as Values;
const SETS = readdirSync(inRepository(EXAMPLES))
  .map((file) => file.replace(/\.yaml$/, ""))
  .filter((name) => !name.endsWith("-servers"));
const ALL = [...CASES, ...SETS.map((name): [string, Values] => [`the example ${name}`, valuesOf(name)])];

/**
 * Returns what kubeconform finds wrong with each of these texts. It reads all of them at once: most of its time it
 * compiles the schema of the version.
 */
function faultsIn(texts: readonly string[], version: string): string[][] {
  const folder = mkdtempSync(join(tmpdir(), "avion-timeline-objects-"));
  try {
    const files = texts.map((_, index) => join(folder, `${index}.yaml`));
    for (const [index, file] of files.entries()) writeFileSync(file, texts[index] as string);
    const schemas = join(inRepository("test/unit/shipping/kubernetes"), "{{ .NormalizedKubernetesVersion }}.json");
    // Two at a time would each compile the schema.
    const args = ["-n", "1", "-strict", "-kubernetes-version", version, "-schema-location", schemas, "-skip", OTHERS];
    const done = spawnSync(KUBECONFORM as string, [...args, "-output", "json", "-verbose", ...files], {
      encoding: "utf8",
      maxBuffer: 1 << 26,
    });
    const { resources } = JSON.parse(done.stdout) as { resources: Checked[] };
    return files.map((file) => {
      const own = resources.filter(({ filename }) => filename === file);
      expect(own.map(({ status }) => status)).not.toEqual([]);
      const faulty = own.filter(({ status }) => !["statusValid", "statusSkipped"].includes(status));
      return faulty.map(({ kind, name, msg }) => `${kind} ${name}: ${msg}`);
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

interface Checked {
  readonly filename: string;
  readonly kind: string;
  readonly name: string;
  readonly status: string;
  readonly msg: string;
}

checking.each(VERSIONS)(
  "Kubernetes %s takes all objects of the chart, and the servers of the example laptop",
  (version) => {
    const servers = readFileSync(inRepository(`${EXAMPLES}/laptop-servers.yaml`), "utf8");
    const rendered = ALL.map(([, values]) => renderText(values, { kubernetes: version }));
    const names = [...ALL.map(([name]) => name), "the servers of the example laptop"];
    const faults = faultsIn([...rendered, servers], version);
    expect(names.map((name, index) => [name, faults[index]])).toEqual(names.map((name) => [name, []]));
  },
);

const BROKEN: readonly [string, string, [from: string, to: string], RegExp][] = [
  ["a field that does not exist", "_pod.tpl", ["readinessProbe:", "readinesProbe:"], /readinesProbe/],
  ["a field at the wrong place", "_pod.tpl", ["    resources:\n", "    livenessProbe: {}\n    limits:\n"], /limits/],
  ["a number that is a text", "services.yaml", ["      port: 50051\n", '      port: "grpc"\n'], /spec\/ports\/0\/port/],
  ["an old API", "ingress.yaml", ["networking.k8s.io/v1", "extensions/v1beta1"], /apiVersion/],
  ["a kind that does not exist", "cronjobs.yaml", ["kind: CronJob", "kind: CronJobs"], /CronJobs/],
  ["a field that is missing", "networkpolicies.yaml", ["  podSelector:\n", "  podSelectors:\n"], /podSelector/],
];

checking("what is wrong in a template is found", () => {
  const texts = BROKEN.map(([, file, [from, to]]) => {
    const breakIt = (chart: string): void => {
      const path = join(chart, "templates", file);
      const text = readFileSync(path, "utf8");
      expect(text).toContain(from);
      writeFileSync(path, text.replace(from, to));
    };
    return withChart(breakIt, (chart) => renderText({ ...EVERYTHING, ...JOBS }, { chart, kubernetes: "1.37.0" }));
  });
  const faults = faultsIn(texts, "1.37.0").map((found) => found.join("\n"));
  expect(BROKEN.map(([name], index) => [name, faults[index]])).toEqual(
    BROKEN.map(([name, , , fault]) => [name, expect.stringMatching(fault)]),
  );
});

const linting = HELM ? test : test.skip;

linting.each(SETS)("helm lint and the service take the example %s", (name) => {
  const file = inRepository(`${EXAMPLES}/${name}.yaml`);
  const done = spawnSync(
    HELM as string,
    ["lint", "--strict", inRepository("charts/avion-timeline"), "--values", file],
    {
      encoding: "utf8",
    },
  );
  expect(done.stdout).toContain("1 chart(s) linted, 0 chart(s) failed");
  const objects = renderChart(valuesOf(name));
  const deployments = ofKind(objects, "Deployment");
  expect(deployments.length).toBeGreaterThanOrEqual(4);
  for (const one of deployments) expect(configOf(one, objects).process.roles).toEqual([role(one)]);
});

linting("the example laptop names the Services of its servers", () => {
  const servers = readFileSync(inRepository(`${EXAMPLES}/laptop-servers.yaml`), "utf8");
  const secrets = ofKind(renderChart(valuesOf("laptop")), "Secret")[0]?.data ?? {};
  for (const key of ["REDIS_URL", "NATS_URL", "DATABASE_URL"]) {
    const { hostname, port } = new URL(Buffer.from(secrets[key] ?? "", "base64").toString());
    expect(servers).toMatch(new RegExp(`kind: Service\nmetadata: { name: ${hostname},[^]*?port: ${port}`));
  }
});
