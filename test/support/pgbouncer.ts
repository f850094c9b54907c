import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../../src/sandbox/brokers/index.js";
import { eventually } from "./eventually.js";

const PROGRAM = "/usr/sbin/pgbouncer";

/** True where pgbouncer is installed. */
export const hasPgbouncer = (): boolean => existsSync(PROGRAM);

/** Starts a pooler of transactions before a PostgreSQL that trusts everybody. */
export async function startPgbouncer(databaseUrl: string): Promise<{ url: string; stop(): Promise<void> }> {
  const { hostname, port: databasePort, username } = new URL(databaseUrl);
  const folder = mkdtempSync(join(tmpdir(), "timeline-test-pgbouncer-"));
  chmodSync(folder, 0o755);
  const port = await freePort();
  const settings = {
    listen_addr: "127.0.0.1",
    listen_port: port,
    unix_socket_dir: "",
    auth_type: "any",
    pool_mode: "transaction",
    ignore_startup_parameters: "statement_timeout,extra_float_digits",
  };
  const file = join(folder, "pgbouncer.ini");
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
  writeFileSync(
    file,
    `[databases]\n* = host=${hostname} port=${databasePort} user=${username}\n[pgbouncer]\n${lines.join("\n")}\n`,
  );
  // It refuses to run as root.
  const user = process.getuid?.() === 0 ? ["--user", "nobody"] : [];
  const pooler: ChildProcess = spawn(PROGRAM, ["--quiet", ...user, file], { stdio: "ignore" });
  await eventually(() => accepts(port), "pgbouncer accepts connections");
  return {
    url: databaseUrl.replace(`:${databasePort}`, `:${port}`),
    stop: async () => {
      const ended = once(pooler, "exit");
      pooler.kill("SIGQUIT");
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}
