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
  ["Every process", "process", "redis", "nats"],
  ["Consumers of messages", "delivery"],
  ["gRPC server: roles api, users, posts", "grpcServer"],
  ["Calls to UserService and PostService", "upstreams"],
  ["Database: roles users, posts, analysis, rewards, gateway", "database"],
  ["Stored timelines: roles fanout and api", "storedTimelines"],
  ["Role fanout", "fanout", "audit"],
  ["Reads and rebuilds: role api, and audits of role fanout", "timeline"],
  ["Role gateway", "gateway"],
  ["Role users", "users"],
  ["Role posts", "posts"],
  ["Roles users and posts", "outbox"],
  ["Role analysis", "analysis"],
  ["The commands up and demo", "brokerBinaries"],
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
