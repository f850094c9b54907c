import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { ConfigError } from "../../../src/kernel/variables.js";
import { readConfig } from "../../../src/roles/config/config.js";
import { ROLES } from "../../../src/roles/config/process.js";
import {
  CLOSE_MARGIN_MS,
  type Environment,
  inRepository,
  PORTS,
  readText,
  readYaml,
  unknownVariables,
} from "./files.js";
import { PROMTOOL } from "./rules.js";

interface Service {
  image: string;
  build?: string;
  environment?: Environment;
  ports?: string[];
  volumes?: string[];
  user?: string;
  read_only: boolean;
  security_opt: string[];
  cap_drop: string[];
  stop_grace_period?: string;
  healthcheck?: { test: string[] };
  depends_on?: Record<string, { condition: string }>;
  deploy?: { replicas: number };
  profiles?: string[];
  networks: string[];
}

const FILE = "docker-compose.yml";
const compose = readYaml(FILE) as { services: Record<string, Service>; networks: object; volumes: object };
const services = Object.entries(compose.services);
const roles = services.filter(([, service]) => service.environment?.["TIMELINE_ROLES"] !== undefined);

/** The required variables. */
const GIVEN: Environment = { TIMELINE_JWT_SECRET: "a secret that is long enough for HS256" };
const UPSTREAMS: Environment = {
  TIMELINE_USER_SERVICE_ADDR: "host.docker.internal:9001",
  TIMELINE_POST_SERVICE_ADDR: "host.docker.internal:9002",
};

/** Fills in `${…}` as compose does; a required variable that is missing is an error. */
function interpolate(text: string, given: Environment): string {
  return text.replace(/\$\{([A-Z0-9_]+)(?::([-?])([^}]*))?\}/g, (_all, name: string, kind?: string, rest?: string) => {
    const value = given[name];
    if (value) return value;
    if (kind === "?") throw new Error(`required variable ${name} is missing: ${rest}`);
    return rest ?? "";
  });
}

const environmentOf = (service: Service, given: Environment): Environment =>
  Object.fromEntries(
    Object.entries(service.environment ?? {}).map(([name, value]) => [name, interpolate(String(value), given)]),
  );

test("every variable of the compose file is one of the service", () => {
  expect(unknownVariables(readText(FILE))).toEqual([]);
});

test("each role is a service of its own, with the replicas it should have", () => {
  expect(Object.fromEntries(roles.map(([name, { deploy }]) => [name, deploy?.replicas ?? 1]))).toEqual({
    bridge: 2,
    fanout: 2,
    api: 1,
    gateway: 1,
    users: 1,
    posts: 1,
    analysis: 1,
    rewards: 1,
    notifications: 1,
    ops: 1,
  });
  expect(roles.map(([name]) => name).sort()).toEqual([...ROLES].sort());
  for (const [name, service] of roles) {
    expect(service.environment?.["TIMELINE_ROLES"]).toBe(name);
    expect(existsSync(inRepository(`${service.build}/Dockerfile`))).toBe(true);
  }
});

test.each(roles)("%s starts with its environment, once required variables are set", (name, service) => {
  const config = readConfig(environmentOf(service, GIVEN));
  expect(config.process.roles).toEqual([name]);
  const urls = [...config.redis.urls, ...config.nats.servers, ...(config.database.url ? [config.database.url] : [])];
  const hosts = urls.map((url) => new URL(url).hostname);
  expect(Object.keys(compose.services)).toEqual(expect.arrayContaining(hosts));
  expect(Object.keys(service.depends_on ?? {}).sort()).toEqual([...new Set(hosts)].sort());
});

test.each(roles)("%s needs no further variable, or the start names it", (_name, service) => {
  let failure: unknown;
  try {
    readConfig(environmentOf(service, {}));
  } catch (error) {
    failure = error;
  }
  expect(failure).not.toBeInstanceOf(ConfigError);
  if (failure) expect((failure as Error).message).toMatch(/^required variable TIMELINE_/);
});

test("roles call the upstreams of the file, unless others are given", () => {
  const addresses = (given: Environment): Record<string, unknown[]> =>
    Object.fromEntries(
      roles.flatMap(([name, service]) => {
        const config = readConfig(environmentOf(service, { ...GIVEN, ...given }));
        const both = [config.upstreams.userServiceAddr, config.upstreams.postServiceAddr];
        return ["analysis", "api", "bridge", "fanout", "ops"].includes(name) ? [[name, both]] : [];
      }),
    );
  const everywhere = (both: unknown[]) => ({ analysis: both, api: both, bridge: both, fanout: both, ops: both });
  expect(addresses({})).toEqual(everywhere([`users:${PORTS.grpc}`, `posts:${PORTS.grpc}`]));
  expect(addresses(UPSTREAMS)).toEqual(everywhere(Object.values(UPSTREAMS)));
  // The gateway asks for the drops of pages.
  const gateway = environmentOf(compose.services["gateway"] as Service, { ...GIVEN, ...UPSTREAMS });
  const { postServiceAddr, userServiceAddr } = readConfig(gateway).upstreams;
  const given = [UPSTREAMS["TIMELINE_POST_SERVICE_ADDR"], UPSTREAMS["TIMELINE_USER_SERVICE_ADDR"]];
  expect([postServiceAddr, userServiceAddr]).toEqual(given);
});

/** The gateway reads results. */
const STORING = ["users", "posts", "analysis", "rewards", "notifications", "gateway"];

test.each(["avion", "x7Kq"])(
  "roles that store reach a database as PostgreSQL makes it, with the password %s",
  (given) => {
    const { environment = {}, volumes, healthcheck } = compose.services["postgres"] as Service;
    const variables: Environment = given === "avion" ? {} : { POSTGRES_PASSWORD: given };
    const made = (name: string): string => interpolate(String(environment[name]), variables);
    expect(made("POSTGRES_PASSWORD")).toBe(given);
    for (const [name, service] of roles) {
      const { url } = readConfig(environmentOf(service, { ...GIVEN, ...variables })).database;
      expect([name, url !== undefined]).toEqual([name, STORING.includes(name)]);
      if (url === undefined) continue;
      const { username, password, pathname, port } = new URL(url);
      expect([username, password, pathname]).toEqual([made("POSTGRES_USER"), given, `/${made("POSTGRES_DB")}`]);
      expect(port).toBe("5432");
    }
    expect(volumes).toEqual(["postgres-data:/var/lib/postgresql/data"]);
    expect(healthcheck?.test).toEqual(expect.arrayContaining([made("POSTGRES_USER"), made("POSTGRES_DB")]));
  },
);

test("secrets come from the environment, and only the roles that need them have them", () => {
  for (const [name, service] of roles) {
    const secret = service.environment?.["TIMELINE_JWT_SECRET"];
    if (name === "gateway" || name === "ops") expect(secret).toMatch(/^\$\{TIMELINE_JWT_SECRET:\?/);
    else expect(secret).toBeUndefined();
  }
});

test("ports are the service's defaults, published on loopback only", () => {
  const published = Object.fromEntries(services.flatMap(([name, { ports }]) => (ports ? [[name, ports]] : [])));
  expect(published).toEqual({
    api: [`127.0.0.1:${PORTS.grpc}:${PORTS.grpc}`],
    users: [`127.0.0.1:50052:${PORTS.grpc}`],
    posts: [`127.0.0.1:50053:${PORTS.grpc}`],
    notifications: [`127.0.0.1:50054:${PORTS.grpc}`],
    gateway: [`127.0.0.1:${PORTS.http}:${PORTS.http}`],
    ops: [`127.0.0.1:${PORTS.ops}:${PORTS.ops}`],
    prometheus: ["127.0.0.1:9090:9090"],
    grafana: ["127.0.0.1:3000:3000"],
  });
});

test.each(roles)("%s is not killed before its shutdown grace ends", (_name, service) => {
  const graceMs = readConfig(environmentOf(service, GIVEN)).process.shutdownGraceMs;
  const [, seconds] = /^(\d+)s$/.exec(service.stop_grace_period ?? "") ?? [];
  expect(Number(seconds) * 1000).toBeGreaterThan(graceMs + CLOSE_MARGIN_MS);
});

test.each(services)("%s runs without privileges", (name, service) => {
  expect(service.read_only).toBe(true);
  expect(service.security_opt).toContain("no-new-privileges:true");
  expect(service.cap_drop).toEqual(["ALL"]);
  expect(service.networks.filter((network) => !(network in compose.networks))).toEqual([]);
  if (roles.some(([role]) => role === name)) return;
  // PostgreSQL's releases of one major version change no behaviour; there is nothing between it and a patch.
  expect(service.image).toMatch(name === "postgres" ? /:\d+-/ : /:v?\d+\.\d+/);
});

test("a service that others wait for has a health check", () => {
  for (const [, service] of roles) {
    for (const [name, { condition }] of Object.entries(service.depends_on ?? {})) {
      expect(condition).toBe("service_healthy");
      expect(compose.services[name]?.healthcheck?.test).toBeDefined();
    }
  }
});

test("mounted files exist, and volumes are declared", () => {
  for (const volume of services.flatMap(([, service]) => service.volumes ?? [])) {
    const source = volume.split(":")[0] as string;
    if (source.startsWith("./")) expect(existsSync(inRepository(source))).toBe(true);
    else expect(compose.volumes).toHaveProperty(source);
  }
});

test("the ports of the NATS configuration are those the compose file uses", () => {
  const conf = readText("nats/nats-server.conf");
  const [, port] = /^port: (\d+)$/m.exec(conf) ?? [];
  const [, httpPort] = /^http_port: (\d+)$/m.exec(conf) ?? [];
  const nats = compose.services["nats"] as Service;
  for (const [, service] of roles) expect(service.environment?.["NATS_URL"]).toBe(`nats://nats:${port}`);
  expect(nats.healthcheck?.test.at(-1)).toBe(`http://127.0.0.1:${httpPort}/healthz`);
  const [, storeDir] = /store_dir: (\S+)/.exec(conf) ?? [];
  expect(nats.volumes?.some((volume) => storeDir?.startsWith(`${volume.split(":")[1]}/`))).toBe(true);
});

const MONITORING = "docs/examples/monitoring";
/** Returns the file or folder of the repository that is mounted at `path` of a service, and the mode. */
const mountedAt = (service: string, path: string): string[] | undefined =>
  compose.services[service]?.volumes?.map((volume) => volume.split(":")).find(([, target]) => target === path);

test("The console, Prometheus and Grafana are started on demand only; the last two read files of the repository", () => {
  const onDemand = services.filter(([, { profiles }]) => profiles !== undefined);
  expect(onDemand.map(([name, { profiles }]) => [name, profiles])).toEqual([
    ["ops", ["ops"]],
    ["prometheus", ["dashboards"]],
    ["grafana", ["dashboards"]],
  ]);
  const mounts = onDemand.flatMap(([, { volumes = [] }]) => volumes).filter((volume) => volume.startsWith("./"));
  expect(mounts.length).toBeGreaterThan(3);
  expect(mounts.filter((volume) => !volume.endsWith(":ro"))).toEqual([]);
});

test("Prometheus asks every role at its port, and sets the labels that rules and dashboards select by", () => {
  const { scrape_configs, rule_files } = readYaml(`${MONITORING}/prometheus.yml`) as {
    rule_files: string[];
    scrape_configs: {
      dns_sd_configs: { names: string[]; port: number }[];
      relabel_configs: { target_label: string }[];
    }[];
  };
  const [asked] = scrape_configs.flatMap(({ dns_sd_configs }) => dns_sd_configs);
  expect([...(asked?.names ?? [])].sort()).toEqual([...ROLES].sort());
  expect(asked?.port).toBe(PORTS.http);
  const labels = scrape_configs.flatMap(({ relabel_configs }) => relabel_configs);
  expect(labels.map(({ target_label }) => target_label).sort()).toEqual(["namespace", "release", "role"]);
  expect(rule_files).toEqual(["/etc/prometheus/rules/*.yaml"]);
  expect(mountedAt("prometheus", "/etc/prometheus/rules")?.[0]).toBe("./charts/avion-timeline/rules");
});

test("Grafana asks Prometheus, knows its interval, and has the dashboards of the chart", () => {
  const { global } = readYaml(`${MONITORING}/prometheus.yml`) as { global: { scrape_interval: string } };
  const { datasources } = readYaml(`${MONITORING}/grafana-datasource.yaml`) as { datasources: object[] };
  const [port] = compose.services["prometheus"]?.ports?.[0]?.split(":").slice(-1) ?? [];
  expect(datasources).toMatchObject([
    { type: "prometheus", url: `http://prometheus:${port}`, jsonData: { timeInterval: global.scrape_interval } },
  ]);
  const { providers } = readYaml(`${MONITORING}/grafana-dashboards.yaml`) as {
    providers: { type: string; options: { path: string } }[];
  };
  expect(providers.map(({ options }) => mountedAt("grafana", options.path)?.[0])).toEqual([
    "./charts/avion-timeline/dashboards",
  ]);
  const home = compose.services["grafana"]?.environment?.["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] ?? "";
  expect(
    existsSync(inRepository(home.replace(providers[0]?.options.path ?? "", "charts/avion-timeline/dashboards"))),
  ).toBe(true);
});

(PROMTOOL ? test : test.skip)("promtool accepts the configuration of Prometheus", () => {
  const file = inRepository(`${MONITORING}/prometheus.yml`);
  const { status, stdout, stderr } = spawnSync(PROMTOOL as string, ["check", "config", file], { encoding: "utf8" });
  expect([status, stdout + stderr]).toEqual([0, expect.stringContaining("SUCCESS")]);
});
