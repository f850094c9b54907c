import { existsSync, mkdirSync, realpathSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { SECOND } from "../kernel/time.js";
import { onPath, startServer } from "./brokers/index.js";
import { portOr, type Sandbox } from "./sandbox.js";

/** The chart has rules for Prometheus, and dashboards for Grafana. */
const CHART = fileURLToPath(new URL("../../charts/avion-timeline", import.meta.url));
const PORTS = { prometheus: 9090, grafana: 3000 };
const SCRAPE_INTERVAL = "5s";

/** The servers of `up --dashboards` that run, and the programs that are not installed. */
export interface Dashboards {
  readonly prometheusUrl?: string;
  readonly grafanaUrl?: string;
  readonly missing: readonly string[];
}

/** Starts Prometheus, and Grafana with the dashboards of the chart, if they are installed. Both end with the sandbox. */
export async function startDashboards(sandbox: Sandbox, env: NodeJS.ProcessEnv = process.env): Promise<Dashboards> {
  const prometheus = await onPath(["prometheus"], env);
  const grafana = await onPath(["grafana", "grafana-server"], env);
  const missing = [...(prometheus ? [] : ["prometheus"]), ...(grafana ? [] : ["grafana"])];
  if (prometheus === undefined) return { missing };
  const prometheusUrl = await startPrometheus(sandbox, prometheus);
  if (grafana === undefined) return { prometheusUrl, missing };
  return { prometheusUrl, grafanaUrl: await startGrafana(sandbox, grafana, prometheusUrl), missing };
}

/** Says where the servers are, and what is not installed. */
export function describeDashboards({ prometheusUrl, grafanaUrl, missing }: Dashboards): string {
  const lines = [
    prometheusUrl && `  Metrics  ${prometheusUrl}   Prometheus, with the rules of the chart\n`,
    grafanaUrl && `  Boards   ${grafanaUrl}/dashboards   Grafana, with the dashboards of the chart\n`,
    missing.length > 0 && `  Not installed, and needed for the dashboards: ${missing.join(" and ")}\n`,
  ];
  return lines.filter(Boolean).join("");
}

async function startPrometheus(sandbox: Sandbox, command: string): Promise<string> {
  const dir = join(sandbox.folder, "prometheus");
  const scraped = (role: string, address: string) => ({
    targets: [address],
    labels: { namespace: "sandbox", release: "up", role },
  });
  const config = writeYaml(join(dir, "prometheus.yml"), {
    global: { scrape_interval: SCRAPE_INTERVAL, evaluation_interval: SCRAPE_INTERVAL },
    rule_files: [join(CHART, "rules", "*.yaml")],
    scrape_configs: [
      {
        job_name: "avion-timeline",
        // The first process has all other roles.
        static_configs: [
          scraped("others", sandbox.httpAddresses.service),
          scraped("fanout", sandbox.httpAddresses.worker),
        ],
      },
    ],
  });
  const address = `127.0.0.1:${await portOr(PORTS.prometheus)}`;
  const args = [`--config.file=${config}`, `--storage.tsdb.path=${dir}/data`, `--web.listen-address=${address}`];
  return start(
    sandbox,
    { command, env: {} },
    { dir, name: "prometheus", args, url: `http://${address}`, health: "/-/ready" },
  );
}

async function startGrafana(sandbox: Sandbox, command: string, prometheusUrl: string) {
  const dir = join(sandbox.folder, "grafana");
  const provisioning = join(dir, "provisioning");
  const jsonData = { timeInterval: SCRAPE_INTERVAL };
  writeYaml(join(provisioning, "datasources", "prometheus.yaml"), {
    apiVersion: 1,
    datasources: [{ name: "Prometheus", type: "prometheus", url: prometheusUrl, isDefault: true, jsonData }],
  });
  writeYaml(join(provisioning, "dashboards", "timeline.yaml"), {
    apiVersion: 1,
    providers: [{ name: "timeline", folder: "Timeline", type: "file", options: { path: join(CHART, "dashboards") } }],
  });
  const port = await portOr(PORTS.grafana);
  const env = {
    GF_PATHS_DATA: join(dir, "data"),
    GF_PATHS_LOGS: join(dir, "log"),
    GF_PATHS_PLUGINS: join(dir, "plugins"),
    GF_PATHS_PROVISIONING: provisioning,
    GF_SERVER_HTTP_ADDR: "127.0.0.1",
    GF_SERVER_HTTP_PORT: String(port),
    GF_AUTH_ANONYMOUS_ENABLED: "true",
    GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION: "true",
    GF_PLUGINS_PREINSTALL_DISABLED: "true",
    GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH: join(CHART, "dashboards", "overview.json"),
    GF_LOG_MODE: "console",
    GF_ANALYTICS_REPORTING_ENABLED: "false",
    GF_ANALYTICS_CHECK_FOR_UPDATES: "false",
  };
  const args = [...(command.endsWith("-server") ? [] : ["server"]), "--homepath", grafanaHome(command)];
  const url = `http://127.0.0.1:${port}`;
  return start(sandbox, { command, env }, { dir, name: "grafana", args, url, health: "/api/health" });
}

/** The folder with Grafana's defaults and pages: that of its packages, of Homebrew, or of its archive. */
function grafanaHome(command: string): string {
  const parent = dirname(dirname(realpathSync(command)));
  const homes = ["/usr/share/grafana", join(parent, "share", "grafana"), parent];
  return homes.find((home) => existsSync(join(home, "conf", "defaults.ini"))) ?? parent;
}

interface Start {
  readonly dir: string;
  readonly name: string;
  readonly args: readonly string[];
  readonly url: string;
  /** The path that answers 200 once the server is ready. */
  readonly health: string;
}

/** Resolves to the URL once the server answers. */
async function start(
  { closers, progress }: Pick<Sandbox, "closers" | "progress">,
  program: { readonly command: string; readonly env: Record<string, string> },
  { url, health, ...launch }: Start,
): Promise<string> {
  progress.say(`starting ${launch.name}`);
  const answers = (): Promise<boolean> =>
    fetch(url + health, { signal: AbortSignal.timeout(SECOND) })
      .then(({ ok }) => ok)
      .catch(() => false);
  const server = await startServer(program, { ...launch, isReady: answers });
  closers.add(launch.name, () => server.stop());
  return url;
}

/** JSON is YAML, too. */
function writeYaml(file: string, content: object): string {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, JSON.stringify(content, null, 2));
  return file;
}
