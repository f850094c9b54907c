import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { VERSION } from "../kernel/version.js";
import { type Dashboards, describeDashboards, startDashboards } from "./dashboards.js";
import { type Sandbox, withSandbox } from "./sandbox.js";

interface UpOptions {
  readonly httpPort: number;
  readonly grpcPort: number;
  readonly followers: number;
  /** Prometheus and Grafana are started, too, if they are installed. */
  readonly dashboards?: boolean;
  /** One line of JSON says where everything is, for tools. */
  readonly json?: boolean;
}

/** Starts a sandbox, prints its addresses, and stays up until a signal. */
export async function up({ json = false, dashboards = false, ...options }: UpOptions): Promise<void> {
  await withSandbox({ ...options, exitCode: 0 }, async (sandbox) => {
    const started = dashboards ? await startDashboards(sandbox) : undefined;
    sandbox.progress.end();
    const variables = await variablesOf(sandbox);
    const shell = join(sandbox.folder, "env");
    writeFileSync(shell, shellOf(sandbox, variables), { mode: 0o600 });
    const facts = { ...factsOf(sandbox, variables), dashboards: started && factsOfDashboards(started) };
    console.log(json ? JSON.stringify(facts) : description(sandbox, shell, started));
    const { worker } = sandbox;
    worker.onReplaced(() => {
      const pid = worker.pid();
      console.log(
        json ? JSON.stringify({ worker_pid: pid }) : `The worker has ended; another one is started with pid ${pid}.`,
      );
    });
    await new Promise(() => undefined);
  });
}

/** The commands in the documents use these. */
async function variablesOf({ httpUrl, redis, nats, grpcAddress, secret, issueToken }: Sandbox) {
  return {
    HTTP: httpUrl,
    GRPC: grpcAddress,
    REDIS_URL: redis.url,
    NATS_URL: nats.url,
    TIMELINE_USER_SERVICE_ADDR: grpcAddress,
    TIMELINE_POST_SERVICE_ADDR: grpcAddress,
    TIMELINE_JWT_SECRET: secret,
    TOKEN: await issueToken("ada"),
  };
}

type VariablesOfUp = Awaited<ReturnType<typeof variablesOf>>;

function shellOf({ redis }: Sandbox, variables: VariablesOfUp): string {
  const lines = Object.entries(variables).map(([name, value]) => `export ${name}='${value}'`);
  const client = redis.cli === "redis-cli" ? [] : [`alias redis-cli='${redis.cli}'`];
  return `# TOKEN is ada's, for one day.\n${[...lines, ...client].join("\n")}\n`;
}

const factsOf = ({ redis, nats, worker, folder, logFile, seeded }: Sandbox, variables: VariablesOfUp) => ({
  version: VERSION,
  seeded,
  variables,
  redis_pid: redis.pid,
  nats_pid: nats.pid,
  worker_pid: worker.pid(),
  folder,
  log_file: logFile,
});

const factsOfDashboards = ({ prometheusUrl, grafanaUrl, missing }: Dashboards) => ({
  prometheus_url: prometheusUrl,
  grafana_url: grafanaUrl,
  not_installed: missing,
});

function description({ httpUrl, worker, logFile, seeded }: Sandbox, shell: string, dashboards?: Dashboards): string {
  return `
avion-timeline ${VERSION} is up: ${seeded}.

  Page     ${httpUrl}/   open it in two tabs: post a drop in one, watch it arrive in the other
  Worker   pid ${worker.pid()}   kill -9 it: another one starts, and nothing is missing
  Log      ${logFile}   of all roles; it is gone when this ends
  Shell    . ${shell}   in another terminal: addresses and a token, also for docs/procedures.md
${dashboards === undefined ? "" : describeDashboards(dashboards)}
  curl -N -H "Authorization: Bearer $TOKEN" $HTTP/events/timeline/home
  curl -H "Authorization: Bearer $TOKEN" $HTTP/api/v1/timelines/home
  redis-cli -u $REDIS_URL publish drop_created 'not json'   # becomes a dead letter
  node dist/main.js dlq ls

Ctrl-C ends it.`;
}
