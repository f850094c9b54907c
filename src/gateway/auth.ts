import {
  createRemoteJWKSet,
  errors,
  type JWTPayload,
  type JWTVerifyGetKey,
  type JWTVerifyOptions,
  jwtVerify,
} from "jose";
import { AppError } from "../kernel/errors.js";
import { idFault } from "../kernel/ids.js";
import { SECOND } from "../kernel/time.js";
import type { GatewayConfig } from "./config.js";

/** Exactly one of `jwtSecret` (HS256) and `jwksUrl` (public keys) is given. */
type AuthConfig = Partial<Pick<GatewayConfig, "jwtSecret" | "jwksUrl" | "jwtIssuer" | "jwtAudience">>;

export interface Principal {
  readonly user: string;
  /** In ms since the epoch. */
  readonly expiresAt: number;
}

/** @throws AppError `unauthenticated` for a token that is not valid, `unavailable` where the keys cannot be fetched. */
export type Authenticate = (token: string) => Promise<Principal>;

const MAX_TOKEN_CHARS = 8 * 1024;
const TOLERANCE_SECONDS = 5;
/** Only algorithms with a public key: a shared-secret one would take that key for the secret. */
const ASYMMETRIC = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519".split(" ");

export function createAuthenticate(config: AuthConfig): Authenticate {
  const { key, algorithms } = keyOf(config);
  const options: JWTVerifyOptions = {
    algorithms,
    clockTolerance: TOLERANCE_SECONDS,
    requiredClaims: ["exp", "sub"],
    ...(config.jwtIssuer === undefined ? {} : { issuer: config.jwtIssuer }),
    ...(config.jwtAudience === undefined ? {} : { audience: config.jwtAudience }),
  };
  return async (token) => {
    if (token.length > MAX_TOKEN_CHARS) throw refusal("too long");
    try {
      return principalOf((await jwtVerify(token, key, options)).payload);
    } catch (error) {
      if (error instanceof AppError) throw error;
      throw refusal("not valid", error);
    }
  };
}

export function refusal(why: string, cause?: unknown): AppError {
  return new AppError("unauthenticated", `the access token is ${why}`, { cause });
}

function principalOf({ sub, exp }: JWTPayload): Principal {
  if (typeof sub !== "string" || idFault(sub) !== undefined) throw refusal("without a usable subject");
  const expiresAt = Number(exp) * SECOND;
  // The tolerance is for clocks that lag behind the issuer's; the end of a token is the end.
  if (!(expiresAt > Date.now())) throw refusal("expired");
  return { user: sub, expiresAt };
}

function keyOf({ jwtSecret: secret, jwksUrl }: AuthConfig): { key: JWTVerifyGetKey; algorithms: string[] } {
  if (jwksUrl !== undefined && secret === undefined) return { key: fetchedKeys(jwksUrl), algorithms: ASYMMETRIC };
  if (secret === undefined || secret === "" || jwksUrl !== undefined) {
    throw new Error("either a secret or a JWKS URL is needed to check tokens");
  }
  const bytes = new TextEncoder().encode(secret);
  return { key: async () => bytes, algorithms: ["HS256"] };
}

function fetchedKeys(url: string): JWTVerifyGetKey {
  const remote = createRemoteJWKSet(new URL(url));
  return async (header, token) => {
    try {
      return await remote(header, token);
    } catch (error) {
      // These errors are about the token; all others are about the key server.
      if (error instanceof errors.JWKSNoMatchingKey) throw error;
      if (error instanceof errors.JWKSMultipleMatchingKeys) throw error;
      if (error instanceof errors.JOSENotSupported) throw error;
      throw new AppError("unavailable", "the keys that tokens are checked with cannot be fetched", { cause: error });
    }
  };
}

interface Credentials {
  readonly token: string;
  readonly method: "bearer" | "cookie";
}

const COOKIE = "access_token";

interface RequestHeaders {
  readonly authorization?: string | undefined;
  readonly cookie?: string | undefined;
  readonly origin?: string | undefined;
  readonly host?: string | undefined;
}

/** Finds the token of a request. With an `Authorization` header, whatever it holds, the cookie does not count. */
export function findCredentials({ authorization, cookie }: RequestHeaders): Credentials | undefined {
  if (authorization !== undefined) {
    const token = /^Bearer +([A-Za-z0-9\-._~+/]+=*) *$/i.exec(authorization)?.[1];
    return token === undefined ? undefined : { token, method: "bearer" };
  }
  for (const pair of (cookie ?? "").split(";")) {
    const at = pair.indexOf("=");
    if (at < 0 || pair.slice(0, at).trim() !== COOKIE) continue;
    const token = pair
      .slice(at + 1)
      .trim()
      .replace(/^"(.*)"$/, "$1");
    return token === "" ? undefined : { token, method: "cookie" };
  }
  return undefined;
}

/** Browsers send the cookie for pages of any origin: a foreign origin must be on the list. */
export function originAllowed({ origin, host }: RequestHeaders, allowed: ReadonlySet<string>): boolean {
  if (origin === undefined || allowed.has(origin)) return true;
  return host !== undefined && URL.canParse(origin) && new URL(origin).host === host.toLowerCase();
}
