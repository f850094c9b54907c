import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import pg from "pg";
import { freePort, isFree } from "../../src/sandbox/brokers/index.js";
import { eventually } from "./eventually.js";
import { makeWalSparse } from "./wal.js";

/** A PostgreSQL of this test's own. */
export type Postgres = {
  readonly url: string;
  readonly version: string;
  /** The process that started all others of the server. */
  readonly pid: () => number;
  /** Ends it as a crash does; what was committed stays. */
  kill(): Promise<void>;
  /** Starts it again on the same port. */
  start(): Promise<void>;
  stop(): Promise<void>;
};

/** `settings`: as in its configuration file. */
export type PostgresOptions = {
  readonly fsync?: boolean;
  readonly settings?: readonly string[];
  /** A folder that exists; its data are in a new one below it. Unset: the temporary folder. */
  readonly within?: string;
  /** Its data are in this folder, which is made where it is missing, and stay there. */
  readonly data?: string;
};

/** The folder of PostgreSQL's programs; undefined where none is installed. */
export function postgresPrograms(): string | undefined {
  const root = "/usr/lib/postgresql";
  const versions = existsSync(root) ? readdirSync(root).sort((a, b) => Number(b) - Number(a)) : [];
  const folders = [
    ...versions.map((version) => join(root, version, "bin")),
    ...(process.env["PATH"] ?? "").split(delimiter),
  ];
  return folders.find((folder) => existsSync(join(folder, "initdb")) && existsSync(join(folder, "postgres")));
}

/** Starts a server with one database in a folder of its own. `fsync` as in production; tests of behaviour need none. */
export async function startPostgres(options: PostgresOptions = {}): Promise<Postgres> {
  const { fsync = false, settings: more = [], within = tmpdir() } = options;
  const programs = postgresPrograms();
  if (programs === undefined) throw new Error("no PostgreSQL is installed");
  const user = unprivileged();
  const folder = mkdtempSync(join(within, "timeline-test-postgres-"));
  if (user.uid !== undefined) chownSync(folder, user.uid, user.gid as number);
  const data = options.data ?? join(folder, "data");
  if (!existsSync(data)) execFileSync("cp", ["-a", preparedCluster(programs, user), data]);
  const port = await freePort();
  let server: ChildProcess | undefined;
  const start = async (): Promise<void> => {
    const settings = [`fsync=${fsync ? "on" : "off"}`, "max_connections=200", "shared_buffers=64MB", ...more];
    server = spawn(
      join(programs, "postgres"),
      ["-D", data, "-h", "127.0.0.1", "-p", String(port), "-k", folder, ...settings.flatMap((one) => ["-c", one])],
      {
        ...user,
        stdio: "ignore",
      },
    );
    await eventually(() => accepts(data), "PostgreSQL accepts connections");
  };
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (server === undefined || server.exitCode !== null || server.signalCode !== null) return;
    const ended = once(server, "exit");
    server.kill(signal);
    await ended;
    await eventually(() => isFree(port), "PostgreSQL's port is free");
  };
  await start();
  return {
    url: `postgres://timeline@127.0.0.1:${port}/postgres`,
    version: readFileSync(join(data, "PG_VERSION"), "utf8").trim(),
    pid: () => server?.pid as number,
    // The postmaster's SIGQUIT: every session dies at once, and the next start recovers.
    kill: () => end("SIGQUIT"),
    start,
    stop: async () => {
      await end("SIGINT");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** initdb takes longer than most tests of a store: its result is kept for each version and user. */
function preparedCluster(programs: string, user: { readonly uid?: number }): string {
  const version = createHash("sha256").update(programs).digest("hex").slice(0, 8);
  const cluster = join(tmpdir(), `timeline-test-cluster-small-${version}-${user.uid ?? process.getuid?.()}`);
  if (existsSync(cluster)) return cluster;
  const draft = mkdtempSync(`${cluster}-`);
  if (user.uid !== undefined) chownSync(draft, user.uid, -1);
  execFileSync(
    join(programs, "initdb"),
    ["-D", draft, "-A", "trust", "-U", "timeline", "-E", "UTF8", "--no-locale", "-N"],
    { ...user, stdio: ["ignore", "ignore", "inherit"], env: { PATH: process.env["PATH"], LC_ALL: "C" } },
  );
  // New databases are copies of template1.
  execFileSync(join(programs, "postgres"), ["--single", "-D", draft, "-c", "log_checkpoints=off", "postgres"], {
    ...user,
    input: "UPDATE pg_database SET datistemplate = false WHERE datname = 'template0'\nDROP DATABASE template0\n",
    stdio: ["pipe", "ignore", "inherit"],
  });
  makeWalSparse(draft);
  try {
    renameSync(draft, cluster);
  } catch {
    // Another file's worker was faster.
    rmSync(draft, { recursive: true, force: true });
  }
  return cluster;
}

/** The last line of the pid file says how far the postmaster is. */
function accepts(data: string): boolean {
  const file = join(data, "postmaster.pid");
  return existsSync(file) && (readFileSync(file, "utf8").split("\n")[7] ?? "").trim() === "ready";
}

/** PostgreSQL refuses to run as root. */
export function unprivileged(): { uid?: number; gid?: number } {
  if (process.getuid?.() !== 0) return {};
  const line = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .find((entry) => entry.startsWith("nobody:"));
  const [, , uid, gid] = line?.split(":") ?? [];
  return { uid: Number(uid), gid: Number(gid) };
}

/** Adds the role `guarded`, which must show this password; everybody else is trusted as before. */
export async function addGuardedRole(url: string, password: string): Promise<void> {
  const admin = new pg.Client(url);
  await admin.connect();
  await admin.query(`CREATE ROLE guarded LOGIN SUPERUSER PASSWORD '${password}'`);
  const { rows } = await admin.query<{ hba_file: string }>("SHOW hba_file");
  writeFileSync(rows[0]?.hba_file as string, "host all guarded all scram-sha-256\nhost all all all trust\n");
  await admin.query("SELECT pg_reload_conf()");
  await admin.end();
}
