import type { Command } from "commander";
import type { Variable } from "../kernel/variables.js";
import { SLICES, VARIABLES } from "../roles/config/config.js";

export function define(command: Command): void {
  command.action(() => console.log(variablesAsMarkdown()));
}

const FIRST = [
  "TIMELINE_ROLES",
  "REDIS_URL",
  "NATS_URL",
  "DATABASE_URL",
  "TIMELINE_USER_SERVICE_ADDR",
  "TIMELINE_POST_SERVICE_ADDR",
  "TIMELINE_JWT_SECRET",
  "TIMELINE_JWT_JWKS_URL",
  "TIMELINE_ALLOWED_ORIGINS",
  "TIMELINE_NATS_REPLICAS",
  "TIMELINE_MAX_ENTRIES",
  "TIMELINE_FANOUT_AUDIENCE",
];

type Slice = keyof typeof SLICES;

const GROUPS: readonly (readonly [title: string, ...slices: Slice[]])[] = [
  ["Every process", "process", "redis", "nats", "delivery"],
  ["gRPC and PostgreSQL", "grpcServer", "upstreams", "database"],
  ["Timelines: roles fanout and api", "storedTimelines", "fanout", "audit", "timeline"],
  ["Role gateway", "gateway"],
  ["Roles users and posts", "users", "posts", "outbox"],
  ["Role analysis", "analysis"],
  ["Role ops", "ops"],
];

/** Writes the tables of docs/configuration.md: the settings that most installations choose, then all others by role. */
export function variablesAsMarkdown(): string {
  const first = FIRST.map((wanted) => VARIABLES.find(({ name }) => name === wanted) as Variable);
  const groups = GROUPS.map(([title, ...slices]) => {
    const variables = slices.flatMap((slice) => Object.values<Variable>(SLICES[slice]));
    return `### ${title}\n\n${table(variables.filter(({ name }) => !FIRST.includes(name)))}`;
  });
  return ["## The settings to choose first", table(first), "## All other settings", ...groups].join("\n\n");
}

const table = (variables: readonly Variable[]): string =>
  [
    "| Variable | Default | Meaning |",
    "| --- | --- | --- |",
    ...variables.map(
      ({ name, default: value, about }) => `| \`${name}\` | ${value ? `\`${value}\`` : ""} | ${about} |`,
    ),
  ].join("\n");
