import { z } from "zod";
import { address, integer, nonEmptyList, share, text, type Variables } from "../../kernel/variables.js";
import { tlsFolder } from "../../platform/tls.js";
import { LOG_LEVELS } from "../../telemetry/logger.js";

/** Roles a process can take; any number of each may run. */
export const ROLES = [
  ...(["bridge", "fanout", "api", "gateway", "users", "posts"] as const),
  ...(["analysis", "rewards", "notifications", "ops"] as const),
] as const;
export type Role = (typeof ROLES)[number];

const notRole = (name: string): string => `${name.slice(0, 50)} is not a role; the roles are ${ROLES.join(", ")}`;

export const PROCESS_VARIABLES = {
  roles: {
    name: "TIMELINE_ROLES",
    schema: nonEmptyList.pipe(z.array(z.enum(ROLES, { error: ({ input }) => notRole(String(input)) }))),
    default: "bridge,fanout,api,gateway",
    about: "Roles of this process",
  },
  httpAddress: {
    name: "TIMELINE_HTTP_ADDR",
    schema: address,
    default: "0.0.0.0:8080",
    about:
      "Where HTTP is served: SSE, /api/v1, /openapi.json, /asyncapi.json, /healthz, /readyz, /metrics; 0.0.0.0 is every address, also of IPv6",
  },
  httpKeepAliveMs: {
    name: "TIMELINE_HTTP_KEEP_ALIVE_MS",
    schema: integer(1_000, 3_600_000),
    default: "75000",
    about:
      "Time that an idle connection of HTTP is kept, ms; longer than the proxy or load balancer before it keeps one: 60 s usually, 600 s some",
  },
  podName: { name: "TIMELINE_POD_NAME", schema: text, about: "Name of this process; unset: host name and pid" },
  shutdownGraceMs: {
    name: "TIMELINE_SHUTDOWN_GRACE_MS",
    schema: integer(0, 600_000),
    default: "20000",
    about: "Time to finish what is in flight after SIGTERM, ms",
  },
  logLevel: {
    name: "TIMELINE_LOG_LEVEL",
    schema: z.enum(LOG_LEVELS),
    default: "info",
    about: `One of ${LOG_LEVELS.join(", ")}`,
  },
  accessLogShare: {
    name: "TIMELINE_ACCESS_LOG_SHARE",
    schema: share,
    default: "1",
    about: "Share of the served gRPC calls and event streams that are logged, 0 to 1; failed calls are always logged",
  },
} as const satisfies Variables;

export const GRPC_SERVER_VARIABLES = {
  address: {
    name: "TIMELINE_GRPC_ADDR",
    schema: address,
    default: "0.0.0.0:50051",
    about: "Where gRPC is served; 0.0.0.0 is every address, also of IPv6",
  },
  tls: {
    name: "TIMELINE_GRPC_TLS",
    former: { ca: "TIMELINE_GRPC_TLS_CA", cert: "TIMELINE_GRPC_TLS_CERT", key: "TIMELINE_GRPC_TLS_KEY" },
    schema: tlsFolder,
    default: "",
    about:
      "Folder with tls.crt and tls.key of the gRPC server; with ca.crt, clients must present a certificate that it signed",
  },
} as const satisfies Variables;
