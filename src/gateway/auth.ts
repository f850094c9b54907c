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

/** How tokens are checked: by a shared secret (HS256), or by the public keys at a URL. */
export interface AuthConfig {
  readonly secret?: string | undefined;
  readonly jwksUrl?: string | undefined;
  readonly issuer?: string | undefined;
  readonly audience?: string | undefined;
}

/** Who a valid token stands for. */
export interface Principal {
  readonly user: string;
  /** When the token ends, in ms since the epoch. */
  readonly expiresAt: number;
}

/**
 * Checks a token.
 *
 * @throws AppError `unauthenticated` for a token that is not valid in any way,
 * `unavailable` where the keys cannot be fetched.
 */
export type Authenticate = (token: string) => Promise<Principal>;

const MAX_TOKEN_CHARS = 8 * 1024;
const TOLERANCE_SECONDS = 5;
/** Only algorithms with a public key: a shared-secret one would take that key for the secret. */
const ASYMMETRIC = [
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
  "Ed25519",
];

/** Makes the function that checks tokens; exactly one of `secret` and `jwksUrl` is to be given. */
export function createAuthenticate(config: AuthConfig): Authenticate {
  const { key, algorithms } = keyOf(config);
  const options: JWTVerifyOptions = {
    algorithms,
    clockTolerance: TOLERANCE_SECONDS,
    requiredClaims: ["exp", "sub"],
    ...(config.issuer === undefined ? {} : { issuer: config.issuer }),
    ...(config.audience === undefined ? {} : { audience: config.audience }),
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

/** The refusal of whoever brings no valid token; it says nothing that would help to forge one. */
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

function keyOf({ secret, jwksUrl }: AuthConfig): { key: JWTVerifyGetKey; algorithms: string[] } {
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
      // These are about the token; everything else is about the server of the keys.
      if (error instanceof errors.JWKSNoMatchingKey) throw error;
      if (error instanceof errors.JWKSMultipleMatchingKeys) throw error;
      if (error instanceof errors.JOSENotSupported) throw error;
      throw new AppError("unavailable", "the keys to check tokens with cannot be had", { cause: error });
    }
  };
}
