import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import { OPS_VARIABLES } from "../../../src/operators/console/config.js";
import { VARIABLES } from "../../../src/roles/config/config.js";
import { GRPC_SERVER_VARIABLES, PROCESS_VARIABLES } from "../../../src/roles/config/process.js";

const ROOT = new URL("../../../", import.meta.url);

export type Environment = Record<string, string>;

export const inRepository = (path: string): string => fileURLToPath(new URL(path, ROOT));

export const readText = (path: string): string => readFileSync(inRepository(path), "utf8");

export const readYaml = (path: string): unknown => parse(readText(path), { merge: true });

export const NAMES: ReadonlySet<string> = new Set(VARIABLES.map(({ name }) => name));

/** Names of variables in a text that the service does not know; `REDIS_URL`, `NATS_URL` and `DATABASE_URL` count like our own. */
export function unknownVariables(text: string): string[] {
  const named = text.match(/\b(TIMELINE_[A-Z0-9_]+|(REDIS|NATS|DATABASE)_[A-Z_]*URL[A-Z_]*)\b/g) ?? [];
  return [...new Set(named)].filter((name) => !NAMES.has(name));
}

/** Default ports of the service. */
export const PORTS = {
  grpc: Number(GRPC_SERVER_VARIABLES.address.default.split(":").at(-1)),
  http: Number(PROCESS_VARIABLES.httpAddress.default.split(":").at(-1)),
  ops: Number(OPS_VARIABLES.address.default.split(":").at(-1)),
};

/** After its shutdown grace a process has this long to close, and then ends by itself. */
export const CLOSE_MARGIN_MS = 10_000;
