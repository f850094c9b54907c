import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "@jest/globals";
import { type Config, readConfig } from "../../../src/roles/config/config.js";
import type { Environment } from "./files.js";
import { type Container, HELM, type Rendered, type Values } from "./helm.js";

export const rendering = HELM ? test : test.skip;
if (!HELM) console.warn("no helm on PATH and none named by HELM: the chart is not rendered");

export const SECRET = "a secret that is long enough for HS256";
export const REQUIRED: Values = {
  "redis.url": "redis://redis:6379",
  "nats.url": "nats://nats:4222",
  "upstreams.userService": "users:50051",
  "upstreams.postService": "posts:50051",
  "jwt.secret": SECRET,
};
export const WITH_EXISTING_SECRETS: Values = {
  "redis.existingSecret": { name: "outside", key: "redis" },
  "nats.existingSecret": { name: "outside", key: "nats" },
  "nats.creds.existingSecret": { name: "outside", key: "creds" },
  "jwt.existingSecret": { name: "outside", key: "jwt" },
  "upstreams.userService": "users:50051",
  "upstreams.postService": "[::1]:50051",
  "database.existingSecret": { name: "outside", key: "database" },
  "roles.users.enabled": true,
};
export const EVERYTHING: Values = {
  ...REQUIRED,
  "upstreams.userService": "",
  "upstreams.postService": "",
  "database.url": "postgresql://avion:secret@db:5432/avion",
  "roles.users.enabled": true,
  "roles.posts.enabled": true,
  "roles.analysis.enabled": true,
  "roles.rewards.enabled": true,
  "roles.notifications.enabled": true,
  "roles.ops.enabled": true,
  "roles.ops.autoscaling.enabled": true,
  "service.users.headless": false,
  "service.users.port": 443,
  "nats.creds.content": "-----BEGIN NATS USER JWT-----\nnot really\n",
  "nats.replicas": 3,
  "jwt.issuer": "https://login.example",
  "jwt.audience": "timeline",
  "config.TIMELINE_KEY_TTL_MS": 2_592_000_000,
  "config.TIMELINE_MAX_ENTRIES": "500",
  "config.TIMELINE_SHUTDOWN_GRACE_MS": 45_500,
  "config.OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
  "roles.fanout.config.TIMELINE_SHUTDOWN_GRACE_MS": 90_000,
  "roles.bridge.autoscaling.enabled": true,
  "roles.rewards.autoscaling.enabled": true,
  "roles.gateway.priorityClassName": "people-first",
  priorityClassName: "steady",
  extraEnv: [{ name: "TIMELINE_RETRY_BASE_MS", value: "250" }],
  "config.TIMELINE_DATABASE_POOL_SIZE": 20,
  "tls.grpc": { existingSecret: "grpc-tls", ca: "ca.crt" },
  "tls.upstream": { existingSecret: "upstream-tls", cert: "tls.crt", key: "tls.key" },
  "tls.nats": { existingSecret: "nats-tls", cert: "tls.crt", key: "tls.key" },
  "autoscaling.enabled": true,
  "service.api.headless": true,
  "ingress.enabled": true,
  "ingress.className": "nginx",
  "ingress.hosts": ["timeline.example"],
  "ingress.tls": [{ secretName: "timeline-tls", hosts: ["timeline.example"] }],
  "metrics.serviceMonitor.enabled": true,
  "metrics.serviceMonitor.labels": { release: "prometheus" },
  "networkPolicy.enabled": true,
  "networkPolicy.metricsFrom": [{ namespaceSelector: { matchLabels: { name: "monitoring" } } }],
  "networkPolicy.opsFrom": [{ podSelector: { matchLabels: { app: "vpn" } } }],
  "networkPolicy.postsFrom": [{ podSelector: { matchLabels: { app: "writer" } } }],
  "networkPolicy.egress": [{ ports: [{ port: 6379 }, { port: 4222 }, { port: 5432 }] }],
  imagePullSecrets: ["registry"],
  commonLabels: { team: "timeline" },
  podAnnotations: { note: "x" },
  podLabels: { mesh: "on" },
  nodeSelector: { pool: "services" },
};
/** The upstreams are the release's own, under names as long as Kubernetes takes them. */
export const OWN_UPSTREAMS: Values = {
  ...REQUIRED,
  "upstreams.userService": "",
  "upstreams.postService": "",
  "database.url": "postgres://avion:secret@db:5432/avion",
  "roles.users.enabled": true,
  "roles.posts.enabled": true,
  fullnameOverride: `${"a-name-that-is-".repeat(4)}long`,
};
export const ofKind = (objects: Rendered[], kind: string): Rendered[] =>
  objects.filter((object) => object.kind === kind);
export const includes = (labels: Environment, selector: Environment): boolean =>
  Object.entries(selector).every(([name, value]) => labels[name] === value);
export const containerOf = (deployment: Rendered): Container => deployment.spec.template.spec.containers[0];
export const role = ({ metadata }: Rendered): string => metadata.labels["app.kubernetes.io/component"] as string;
export const servesGrpc = (one: Rendered): boolean => ["api", "users", "posts", "notifications"].includes(role(one));

/** The content of a Secret of the operator. */
const OUTSIDE: Environment = {
  REDIS_URL: "rediss://redis:6379",
  NATS_URL: "tls://nats:4222",
  DATABASE_URL: "postgres://db/avion",
  TIMELINE_JWT_SECRET: SECRET,
};

/** The environment of the container. */
export function environmentOf(deployment: Rendered, objects: Rendered[]): Environment {
  const { env, envFrom } = containerOf(deployment);
  const result: Environment = {};
  for (const { configMapRef } of envFrom) {
    const map = ofKind(objects, "ConfigMap").find(({ metadata }) => metadata.name === configMapRef.name);
    Object.assign(result, map?.data ?? { TIMELINE_CONFIG_MAP_IS_MISSING: "" });
  }
  for (const { name, value, valueFrom } of env) {
    if (valueFrom?.fieldRef) {
      expect(valueFrom.fieldRef.fieldPath).toBe("metadata.name");
      result[name] = "pod-0";
    } else if (valueFrom?.secretKeyRef) {
      const { name: secretName, key } = valueFrom.secretKeyRef;
      const own = ofKind(objects, "Secret").find(({ metadata }) => metadata.name === secretName);
      if (!own) expect(["outside", "timeline"]).toContain(secretName);
      const held = own ? Buffer.from(own.data?.[key] ?? "", "base64").toString() : (OUTSIDE[name] as string);
      expect(held).not.toBe("");
      result[name] = held;
    } else {
      result[name] = value as string;
      expect(typeof value).toBe("string");
    }
  }
  return result;
}

/** The configuration of the container, with folders that hold the files which its volumes take from Secrets. */
export function configOf(deployment: Rendered, objects: Rendered[]): Config {
  const env = environmentOf(deployment, objects);
  const root = mkdtempSync(join(tmpdir(), "timeline-test-chart-"));
  for (const { name, mountPath } of containerOf(deployment).volumeMounts) {
    const volume = deployment.spec.template.spec.volumes.find((one) => one.name === name);
    const folder = join(root, name);
    mkdirSync(folder);
    for (const { path } of volume?.secret?.items ?? []) writeFileSync(join(folder, path), "");
    for (const [variable, value] of Object.entries(env)) if (value === mountPath) env[variable] = folder;
  }
  try {
    return readConfig(env);
  } finally {
    rmSync(root, { recursive: true });
  }
}
