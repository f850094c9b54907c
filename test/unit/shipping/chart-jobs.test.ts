import { expect } from "@jest/globals";
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
} from "./chart-cases.js";
import { readText } from "./files.js";
import { type Rendered, renderChart, type Values } from "./helm.js";

const VOLUME = { persistentVolumeClaim: { claimName: "backups", readOnly: true } };
const JOBS: Values = { "backupCheck.enabled": true, "backupCheck.volume": VOLUME };

interface CronJob extends Omit<Rendered, "spec"> {
  readonly spec: {
    readonly schedule: string;
    readonly concurrencyPolicy: string;
    readonly jobTemplate: { readonly spec: Pick<Rendered["spec"], "template"> & { readonly backoffLimit: number } };
  };
}

const jobsOf = (objects: Rendered[]): Map<string, CronJob> =>
  new Map((ofKind(objects, "CronJob") as unknown as CronJob[]).map((one) => [role(one as unknown as Rendered), one]));
const podOf = (job: CronJob | undefined): Rendered =>
  ({ ...job, spec: (job as CronJob).spec.jobTemplate.spec }) as unknown as Rendered;

rendering("by default all homes are audited weekly, slowly, and repaired, with the settings of the role fanout", () => {
  const objects = renderChart({ ...EVERYTHING, "roles.fanout.config": { TIMELINE_RETRY_BASE_MS: "300" } });
  const job = jobsOf(objects).get("audit");
  expect(job?.spec).toMatchObject({
    schedule: "0 3 * * 0",
    concurrencyPolicy: "Forbid",
    jobTemplate: { spec: { backoffLimit: 0 } },
  });
  const pod = podOf(job);
  const container = containerOf(pod);
  expect(container.args).toEqual(["audit", "--users", "1000000", "--rate", "2", "--json", "--fix"]);
  const fanout = ofKind(objects, "Deployment").find((one) => role(one) === "fanout") as Rendered;
  expect(environmentOf(pod, objects)).toEqual(environmentOf(fanout, objects));
  expect(container.volumeMounts).toEqual(containerOf(fanout).volumeMounts);
  expect(configOf(pod, objects).upstreams.userServiceAddr).toBeDefined();
  expect(pod.spec.template.spec).toMatchObject({ restartPolicy: "Never", automountServiceAccountToken: false });
  for (const field of ["ports", "startupProbe", "livenessProbe", "readinessProbe", "lifecycle"])
    expect(container).not.toHaveProperty(field);
});

rendering("the audit only compares, looks at fewer homes, or does not run, if that is asked for", () => {
  const objects = renderChart({ ...REQUIRED, "audit.fix": false, "audit.users": 500, "audit.rate": 9 });
  const { args } = containerOf(podOf(jobsOf(objects).get("audit")));
  expect(args).toEqual(["audit", "--users", "500", "--rate", "9", "--json"]);
  expect(ofKind(renderChart({ ...REQUIRED, "audit.enabled": false }), "CronJob")).toEqual([]);
});

rendering("a container beside the service does not keep a job from ending", () => {
  const beside = {
    extraContainers: [{ name: "proxy", image: "proxy" }],
    initContainers: [{ name: "first", image: "first" }],
  };
  const objects = renderChart({ ...REQUIRED, ...JOBS, ...beside });
  const { containers, initContainers } = podOf(jobsOf(objects).get("audit")).spec.template.spec as unknown as {
    containers: { name: string }[];
    initContainers: { name: string }[];
  };
  expect([containers, initContainers].map((list) => list.map(({ name }) => name))).toEqual([["audit"], ["first"]]);
});

rendering("the backup check runs the chart's script on the volume, as the user of PostgreSQL's image", () => {
  const objects = renderChart({
    ...REQUIRED,
    ...JOBS,
    "backupCheck.image": "postgres:16",
    "backupCheck.maxAgeHours": 5,
  });
  const { spec } = podOf(jobsOf(objects).get("backup-check")).spec.template;
  const { command, args, env, image, volumeMounts } = spec.containers[0] as unknown as Record<string, unknown> & {
    args: [string];
  };
  expect({ command, image, script: args[0].trim() }).toEqual({
    command: ["bash", "-c"],
    image: "postgres:16",
    script: readText("charts/avion-timeline/files/check-backup.sh").trim(),
  });
  expect(env).toEqual([
    { name: "BACKUPS", value: "/backups" },
    { name: "WORK", value: "/work" },
    { name: "MAX_AGE_HOURS", value: "5" },
  ]);
  expect(volumeMounts).toMatchObject([{ mountPath: "/backups", readOnly: true }, { mountPath: "/work" }]);
  expect(spec.volumes).toEqual([
    { name: "backups", ...VOLUME },
    { name: "work", emptyDir: { sizeLimit: "20Gi" } },
  ]);
  expect(spec.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 999, fsGroup: 999 });
});

rendering("pods of jobs belong to no Service, budget or deployment, and reach what they need", () => {
  const objects = renderChart({ ...OWN_UPSTREAMS, ...JOBS, "networkPolicy.egress": [{ ports: [{ port: 6379 }] }] });
  const labels = new Map([...jobsOf(objects)].map(([name, job]) => [name, podOf(job).spec.template.metadata.labels]));
  const policies = new Map(ofKind(objects, "NetworkPolicy").map((one) => [role(one), one.spec]));
  for (const [name, own] of labels) {
    for (const kind of ["Deployment", "PodDisruptionBudget"])
      for (const { spec } of ofKind(objects, kind)) expect(includes(own, spec.selector.matchLabels)).toBe(false);
    for (const { spec } of ofKind(objects, "Service"))
      expect(includes(own, spec.selector as unknown as Record<string, string>)).toBe(false);
    expect(includes(own, policies.get(name)?.podSelector.matchLabels ?? { none: "" })).toBe(true);
    expect(policies.get(name)).toMatchObject({ policyTypes: ["Ingress", "Egress"], ingress: [] });
  }
  expect(policies.get("audit")?.egress).toEqual(policies.get("fanout")?.egress);
  expect(policies.get("backup-check")?.egress).toEqual([]);
  expect(JSON.stringify(policies.get("users")?.ingress)).toContain('"audit"');
});

rendering("names of CronJobs have at most 52 characters", () => {
  const names = ofKind(renderChart({ ...OWN_UPSTREAMS, ...JOBS }), "CronJob").map(({ metadata }) => metadata.name);
  expect(names).toHaveLength(2);
  expect(names.filter((name) => name.length > 52)).toEqual([]);
});

rendering.each<[string, Values, RegExp]>([
  ["a backup check without a volume", { "backupCheck.enabled": true }, /backupCheck\.volume is needed/],
  ["a schedule that is none", { ...JOBS, "audit.schedule": "weekly" }, /audit\/schedule/],
  ["an audit without upstreams", { ...JOBS, "upstreams.userService": "" }, /upstreams\.userService is needed/],
])("%s is refused before anything is installed", (_name, values, why) => {
  expect(() => renderChart({ ...REQUIRED, ...values })).toThrow(why);
});
