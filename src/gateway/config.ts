import { webUrl } from "../kernel/urls.js";
import { type ConfigOf, flag, integer, list, nonEmptyList, text, type Variables } from "../kernel/variables.js";

/** Browsers send an origin without a path or a default port, in lower case. Apps have schemes of their own. */
function isOrigin(text: string): boolean {
  const [, scheme] = /^([a-z][a-z0-9+.-]*):\/\/[^/?#@\s*]+$/.exec(text) ?? [];
  if (scheme === "http" || scheme === "https") return URL.canParse(text) && new URL(text).origin === text;
  return scheme !== undefined;
}

const origins = list.refine((all) => all.every(isOrigin), {
  message: "must be origins as browsers send them, e.g. https://app.example",
});

export const GATEWAY_VARIABLES = {
  jwtSecrets: {
    name: "TIMELINE_JWT_SECRET",
    schema: nonEmptyList,
    about:
      "Secret of HS256 tokens, 32 bytes or more (roles gateway and ops). While it is replaced: the new one and the old one (comma list)",
  },
  jwksUrl: {
    name: "TIMELINE_JWT_JWKS_URL",
    schema: webUrl,
    about: "Key set of asymmetric tokens, over https:, in place of TIMELINE_JWT_SECRET; needs issuer and audience",
  },
  jwtIssuer: {
    name: "TIMELINE_JWT_ISSUER",
    schema: text,
    about: "Required iss of tokens; may be unset with TIMELINE_JWT_SECRET",
  },
  jwtAudience: {
    name: "TIMELINE_JWT_AUDIENCE",
    schema: text,
    about: "Required aud of tokens; may be unset with TIMELINE_JWT_SECRET",
  },
  allowUnsafeTokens: {
    name: "TIMELINE_JWT_ALLOW_UNSAFE",
    schema: flag,
    default: "false",
    about: "true: a secret may be shorter, and a key set over http: or without issuer and audience",
  },
  allowedOrigins: {
    name: "TIMELINE_ALLOWED_ORIGINS",
    schema: origins,
    default: "",
    about: "Origins (comma list), each as https://app.example, whose pages may use the gateway, also with cookies",
  },
  maxConnections: {
    name: "TIMELINE_SSE_MAX_CONNECTIONS",
    schema: integer(1, 1_000_000),
    default: "50000",
    about: "Event streams that a process opens at most",
  },
  maxConnectionsPerUser: {
    name: "TIMELINE_SSE_MAX_CONNECTIONS_PER_USER",
    schema: integer(1, 1_000),
    default: "20",
    about: "Event streams of one user that a process opens at most",
  },
} as const satisfies Variables;

export type GatewayConfig = ConfigOf<typeof GATEWAY_VARIABLES>;

/** A key shorter than the hash is weaker than it (RFC 7518, section 3.2). */
const MIN_SECRET_BYTES = 32;

/** Reports settings that would accept tokens made by others. */
export function tokenFaults({
  jwtSecrets = [],
  jwksUrl,
  jwtIssuer,
  jwtAudience,
  allowUnsafeTokens,
}: GatewayConfig): string[] {
  const both = jwtSecrets.length > 0 && jwksUrl !== undefined;
  const excluded = both ? ["TIMELINE_JWT_SECRET: excludes TIMELINE_JWT_JWKS_URL"] : [];
  if (allowUnsafeTokens) return excluded;
  const faults: string[] = [];
  if (jwtSecrets.some((secret) => Buffer.byteLength(secret) < MIN_SECRET_BYTES))
    faults.push(`TIMELINE_JWT_SECRET: is shorter than ${MIN_SECRET_BYTES} bytes`);
  if (jwksUrl !== undefined && new URL(jwksUrl).protocol !== "https:")
    faults.push("TIMELINE_JWT_JWKS_URL: must be https:, or the keys can be replaced on the way");
  const claims = { TIMELINE_JWT_ISSUER: jwtIssuer, TIMELINE_JWT_AUDIENCE: jwtAudience };
  for (const [name, value] of Object.entries(claims)) {
    if (jwksUrl !== undefined && value === undefined)
      faults.push(`${name}: is needed with TIMELINE_JWT_JWKS_URL: the same keys sign tokens for other services`);
  }
  const avoidable = faults.map((fault) => `${fault} (TIMELINE_JWT_ALLOW_UNSAFE=true allows it)`);
  return [...avoidable, ...excluded];
}
