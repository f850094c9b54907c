import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { temporaryFolder } from "./brokers.js";
import { eventually } from "./eventually.js";
import { freePorts, httpStatus } from "./service.js";

const binary = [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin"]
  .map((folder) => join(folder, "nginx"))
  .find((path) => existsSync(path));

if (binary === undefined) console.warn("no nginx on the PATH: the tests behind it are skipped");

export const hasNginx = binary !== undefined;

export interface Nginx {
  readonly url: string;
  stop(): Promise<void>;
}

/** Starts nginx with the configuration of docs/procedures.md, and a page at `/page`. */
export async function startNginx(gateways: readonly string[]): Promise<Nginx> {
  if (binary === undefined) throw new Error("no nginx");
  const [[port], dir, doc] = await Promise.all([
    freePorts(),
    temporaryFolder("nginx"),
    readFile("docs/procedures.md", "utf8"),
  ]);
  let servers = /```nginx\n([\s\S]*?)```/.exec(doc)?.[1] ?? "";
  for (const [index, url] of gateways.entries()) servers = servers.replace(`gateway-${index}:8080`, new URL(url).host);
  const page = 'location = /page { default_type text/html; return 200 "<title>page</title>"; }';
  servers = servers.replace("listen 8443;", `listen 127.0.0.1:${port};\n${page}`);
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${dir}/${name};`,
  );
  const config = `daemon off; master_process off; pid ${dir}/pid; error_log stderr error;
    events { worker_connections 4096; } http { access_log off; ${temporary.join(" ")} ${servers} }`;
  await writeFile(join(dir, "nginx.conf"), config);
  const child = spawn(binary, ["-p", dir, "-c", "nginx.conf", "-e", "stderr"], { stdio: ["ignore", "ignore", "pipe"] });
  const errors: string[] = [];
  child.stderr.on("data", (text: Buffer) => errors.push(text.toString()));
  const exited = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const url = `http://127.0.0.1:${port}`;
  await eventually(async () => (await httpStatus(`${url}/page`)) === 200 || errors.join(""), "nginx answers");
  return {
    url,
    stop: async () => {
      child.kill("SIGKILL");
      await exited;
    },
  };
}
