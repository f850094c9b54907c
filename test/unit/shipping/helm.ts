import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { parseAllDocuments, stringify } from "yaml";
import { inRepository } from "./files.js";

type Labels = Record<string, string>;

interface EnvVar {
  name: string;
  value?: string;
  valueFrom?: { fieldRef?: { fieldPath: string }; secretKeyRef?: { name: string; key: string } };
}

interface Probe {
  httpGet: { path: string; port: string };
}

export interface Container {
  name: string;
  args: string[];
  image: string;
  env: EnvVar[];
  envFrom: { configMapRef: { name: string } }[];
  ports: { name: string; containerPort: number }[];
  startupProbe: Probe;
  livenessProbe: Probe;
  readinessProbe: Probe;
  lifecycle: { preStop: { exec: { command: string[] } } };
  resources: object;
  volumeMounts: { name: string; mountPath: string; readOnly?: boolean }[];
  securityContext: object;
}

interface PodSpec {
  serviceAccountName: string;
  automountServiceAccountToken: boolean;
  enableServiceLinks: boolean;
  terminationGracePeriodSeconds: number;
  priorityClassName?: string;
  securityContext: { runAsUser: number };
  topologySpreadConstraints: { labelSelector: { matchLabels: Labels } }[];
  containers: [Container];
  volumes: { name: string; secret?: { secretName: string; items?: { key: string; path: string }[] } }[];
}

interface Peer {
  ipBlock?: { cidr: string; except?: string[] };
  podSelector?: { matchLabels?: Labels; matchExpressions?: { key: string; operator: "In"; values: string[] }[] };
}

export interface Rendered {
  apiVersion: string;
  kind: string;
  metadata: { name: string; labels: Labels; annotations?: Labels };
  data?: Record<string, string>;
  automountServiceAccountToken?: boolean;
  spec: {
    replicas?: number;
    strategy: object;
    selector: { matchLabels: Labels };
    podSelector: { matchLabels: Labels };
    template: { metadata: { labels: Labels }; spec: PodSpec };
    scaleTargetRef: { kind: string; name: string };
    metrics: object[];
    unhealthyPodEvictionPolicy?: string;
    triggers: object[];
    clusterIP?: string;
    ports: { name: string; port: number; targetPort: string }[];
    endpoints: { port: string; path: string; relabelings: { sourceLabels: string[]; targetLabel: string }[] }[];
    rules: { http: { paths: { path: string; backend: { service: { name: string; port: { name: string } } } }[] } }[];
    ingress: { ports: { port: string }[]; from: Peer[] }[];
    egress: { ports: { port: number }[]; to?: Peer[] }[];
    policyTypes: string[];
  };
}

const onPath = (program: string): string | undefined =>
  (process.env["PATH"] ?? "")
    .split(delimiter)
    .map((folder) => join(folder, program))
    .find((file) => existsSync(file));

/** `helm` of the environment variable HELM, else of PATH. */
export const HELM = process.env["HELM"] || onPath("helm");
/** The same of kubeconform, which compares objects with the schemas of Kubernetes. */
export const KUBECONFORM = process.env["KUBECONFORM"] || onPath("kubeconform");

const KUBE_VERSION = "1.30.0";

/** Values by path, as in `{ "redis.url": "redis://redis:6379" }`. */
export type Values = Record<string, unknown>;

export function nested(values: Values): object {
  const root: Record<string, unknown> = {};
  for (const [path, value] of Object.entries(values)) {
    const keys = path.split(".");
    const last = keys.pop() as string;
    let at = root;
    for (const key of keys) {
      at[key] ??= {};
      at = at[key] as Record<string, unknown>;
    }
    at[last] = value;
  }
  return root;
}

const CHART = inRepository("charts/avion-timeline");
const rendered = new Map<string, readonly Rendered[]>();

/**
 * Renders the chart as the release "timeline": Kubernetes makes variables that
 * begin with TIMELINE_ of that name. Helm runs once for the same values.
 *
 * @throws Error with what helm wrote, where it refuses
 */
export function renderChart(values: Values, release: Release = RELEASE): Rendered[] {
  const key = JSON.stringify([values, release]);
  const objects = rendered.get(key) ?? template(values, CHART, release);
  rendered.set(key, objects);
  return structuredClone([...objects]);
}

interface Release {
  readonly name: string;
  readonly namespace: string;
}

export const RELEASE: Release = { name: "timeline", namespace: "default" };

function template(values: Values, chart: string, release: Release = RELEASE): Rendered[] {
  return parseAllDocuments(renderText(values, { chart, release }), { version: "1.1" })
    .map((document) => {
      if (document.errors.length > 0) throw new Error(`helm template: ${document.errors.join("; ")}`);
      return document.toJS() as Rendered | null;
    })
    .filter((object) => object !== null);
}

interface Rendering {
  readonly chart?: string;
  readonly release?: Release;
  readonly kubernetes?: string;
  /** Further arguments of helm. */
  readonly args?: readonly string[];
}

/** What helm writes, as text. */
export function renderText(values: Values, options: Rendering = {}): string {
  const { chart = CHART, release = RELEASE, kubernetes = KUBE_VERSION, args: more = [] } = options;
  const as = ["--namespace", release.namespace, "--kube-version", kubernetes, "--values", "-"];
  const args = ["template", release.name, chart, ...as, ...more];
  const done = spawnSync(HELM as string, args, {
    encoding: "utf8",
    input: stringify(nested(values), { version: "1.1" }),
  });
  if (done.status !== 0) throw new Error(`helm template: ${done.error?.message ?? done.stderr}`);
  return done.stdout;
}

/** Works on a copy of the chart in which `change` has changed a file. */
export function withChart<T>(change: (folder: string) => void, work: (chart: string) => T): T {
  const chart = join(mkdtempSync(join(tmpdir(), "avion-timeline-chart-")), "avion-timeline");
  try {
    cpSync(CHART, chart, { recursive: true });
    change(chart);
    return work(chart);
  } finally {
    rmSync(join(chart, ".."), { recursive: true, force: true });
  }
}

/** The notes that follow an installation; helm itself renders them only against a cluster. */
export function renderNotes(values: Values): string {
  const asTemplate = (chart: string): void => {
    renameSync(join(chart, "templates/NOTES.txt"), join(chart, "notes.tpl"));
    const template = 'kind: Notes\ntext: {{ tpl (.Files.Get "notes.tpl") . | toJson }}\n';
    writeFileSync(join(chart, "templates/notes.yaml"), template);
  };
  return withChart(asTemplate, (chart) => {
    const notes = template(values, chart).find(({ kind }) => kind === "Notes") as unknown as { text: string };
    return notes.text;
  });
}
