import { createSecretKey, type KeyObject } from "node:crypto";
import type { JWTPayload } from "jose";
import jsonwebtoken, { type VerifyOptions } from "jsonwebtoken";
import { isListReader } from "../contracts/lists.js";
import { AppError, codeOf } from "../kernel/errors.js";
import { idFault } from "../kernel/ids.js";
import { SECOND, sharedNow } from "../kernel/time.js";
import { parseUrl } from "../kernel/urls.js";
import { isRefused, type LogoutsAmong, unlessAway } from "../state/index.js";
import type { GatewayConfig } from "./config.js";
import type { VerifyToken } from "./keys.http.js";

/** Either `jwtSecrets` (HS256) or `verify` (public keys) is given. */
interface AuthConfig extends Partial<Pick<GatewayConfig, "jwtSecrets" | "jwtIssuer" | "jwtAudience">> {
  readonly verify?: VerifyToken | undefined;
}

export interface Principal {
  readonly user: string;
  /** Both times are in ms since the epoch; a token without `iat` was issued at 0. */
  readonly expiresAt: number;
  readonly issuedAt: number;
  /** The claim is unchecked: any JSON value may stand here. */
  readonly tier?: unknown;
}

/** @throws AppError `unauthenticated` for a token that is not valid, `unavailable` if the keys cannot be fetched. */
export type Authenticate = (token: string) => Promise<Principal>;

/** An operator's token has this value in the claim, which is a text, a list, or texts between spaces as in `scope`. */
export interface Claim {
  readonly name: string;
  readonly value: string;
}

const MAX_TOKEN_CHARS = 8 * 1024;
const CLOCK_TOLERANCE_SECONDS = 5;
/** Algorithms with a public key. HS256 would accept that key as its secret. */
const ASYMMETRIC = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519".split(" ");

/** With `claim` a valid token that lacks it is refused with AppError `forbidden`. */
export function createAuthenticate(config: AuthConfig, claim?: Claim): Authenticate {
  const claimsOf = createClaimsOf(config);
  return async (token) => {
    if (token.length > MAX_TOKEN_CHARS) throw unauthenticated("too long");
    try {
      const claims = await claimsOf(token);
      const principal = principalOf(claims);
      if (claim && !hasClaim(claims, claim)) throw new AppError("forbidden", "the access token is not an operator's");
      return principal;
    } catch (error) {
      if (error instanceof AppError) throw error;
      throw unauthenticated("not valid", error);
    }
  };
}

/** While Redis is away no valid token is refused. @throws also AppError `unauthenticated` for a user who is logged out */
export function refusingLoggedOut(authenticate: Authenticate, among: () => LogoutsAmong | undefined): Authenticate {
  return async (token) => {
    const principal = await authenticate(token);
    const logouts = await unlessAway(among()?.([principal.user]) ?? Promise.resolve(undefined));
    if (isRefused(principal.issuedAt, logouts?.get(principal.user))) throw loggedOut();
    return principal;
  };
}

/** @throws also AppError `forbidden` for a user who is suspended */
export function refusingSuspended(authenticate: Authenticate, isSuspended: (user: string) => boolean): Authenticate {
  return async (token) => {
    const principal = await authenticate(token);
    if (isSuspended(principal.user)) throw suspended();
    return principal;
  };
}

export const suspended = (): AppError => new AppError("forbidden", "the user is suspended");

export const loggedOut = (): AppError => unauthenticated("of before the user was logged out");

function unauthenticated(why: string, cause?: unknown): AppError {
  return new AppError("unauthenticated", `the access token is ${why}`, { cause });
}

function principalOf({ sub, exp, iat, tier }: JWTPayload): Principal {
  // NOTIFY and the registry know lists under names that no user may have.
  if (typeof sub !== "string" || idFault(sub) !== undefined || isListReader(sub))
    throw unauthenticated("without a usable subject");
  const expiresAt = Number(exp) * SECOND;
  // The tolerance is for the `nbf` of an issuer whose clock is ahead; an expired token is never accepted.
  if (!(expiresAt > sharedNow())) throw unauthenticated("expired");
  return { user: sub, expiresAt, issuedAt: typeof iat === "number" ? iat * SECOND : 0, tier };
}

function hasClaim(claims: JWTPayload, { name, value }: Claim): boolean {
  const claim = Object.hasOwn(claims, name) ? claims[name] : undefined;
  const values: readonly unknown[] = Array.isArray(claim) ? claim : typeof claim === "string" ? claim.split(" ") : [];
  return values.includes(value);
}

type ClaimsOf = (token: string) => JWTPayload | Promise<JWTPayload>;

function createClaimsOf({ jwtSecrets = [], verify, jwtIssuer, jwtAudience }: AuthConfig): ClaimsOf {
  if (jwtSecrets.length > 0 === (verify !== undefined))
    throw new Error("either a secret or a JWKS URL is needed to check tokens");
  const rules = {
    clockTolerance: CLOCK_TOLERANCE_SECONDS,
    ...(jwtIssuer === undefined ? {} : { issuer: jwtIssuer }),
    ...(jwtAudience === undefined ? {} : { audience: jwtAudience }),
  };
  if (verify === undefined)
    return claimsBySecret(
      jwtSecrets.map((secret) => createSecretKey(Buffer.from(secret))),
      rules,
    );
  const options = { ...rules, algorithms: ASYMMETRIC, requiredClaims: ["exp", "sub"] };
  return (token) => verify(token, { ...options, currentDate: new Date(sharedNow()) });
}

/**
 * A token is valid by any of the secrets, so that one can be replaced. This library checks in the caller's thread, 8 us
 * a token; jose asks another thread.
 */
function claimsBySecret(secrets: readonly KeyObject[], rules: VerifyOptions): ClaimsOf {
  return (token) => {
    const options = { ...rules, algorithms: ["HS256" as const], clockTimestamp: Math.floor(sharedNow() / SECOND) };
    let refusal: unknown;
    for (const secret of secrets) {
      try {
        const { header, payload } = jsonwebtoken.verify(token, secret, { ...options, complete: true });
        // The library ignores the extensions that a token declares critical (RFC 7515, section 4.1.11).
        if ("crit" in header) throw unauthenticated("not of a kind known here");
        return payload as JWTPayload;
      } catch (error) {
        refusal = error;
      }
    }
    throw refusal;
  };
}

interface Credentials {
  /** Cookies of one name may be set for several paths and domains. */
  readonly tokens: readonly string[];
  readonly method: "bearer" | "cookie";
}

const COOKIE = "access_token";
const MAX_COOKIES = 4;

interface RequestHeaders {
  readonly authorization?: string | undefined;
  readonly cookie?: string | undefined;
  readonly origin?: string | undefined;
  readonly host?: string | undefined;
  readonly "sec-fetch-site"?: string | string[] | undefined;
}

/** Finds the tokens of a request. An `Authorization` header, even a malformed one, excludes the cookies. */
export function findCredentials({ authorization, cookie }: RequestHeaders): Credentials | undefined {
  if (authorization !== undefined) {
    const token = /^Bearer +([A-Za-z0-9\-._~+/]+=*) *$/i.exec(authorization)?.[1];
    return token === undefined ? undefined : { tokens: [token], method: "bearer" };
  }
  const tokens = (cookie ?? "").split(";").flatMap((pair) => {
    const equals = pair.indexOf("=");
    if (equals < 0 || pair.slice(0, equals).trim() !== COOKIE) return [];
    const value = pair.slice(equals + 1).trim();
    return value.replace(/^"(.*)"$/, "$1") || [];
  });
  return tokens.length === 0 ? undefined : { tokens: tokens.slice(0, MAX_COOKIES), method: "cookie" };
}

/** The first token that is valid counts. They are checked at once, so that unknown keys are asked for in one request. */
async function authenticateAny(authenticate: Authenticate, tokens: readonly string[]): Promise<Principal> {
  const outcomes = await Promise.allSettled(tokens.map(authenticate));
  const valid = outcomes.find(({ status }) => status === "fulfilled");
  if (valid?.status === "fulfilled") return valid.value;
  const refusals = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason as unknown] : []));
  throw refusals.find((refusal) => codeOf(refusal) === "unavailable") ?? refusals[0];
}

/** @throws as `Authenticate` does, and AppError `forbidden` for a cookie sent by the page of another origin */
export type Authorize = (headers: RequestHeaders) => Promise<Principal>;

export function createAuthorize(authenticate: Authenticate, allowedOrigins: ReadonlySet<string>): Authorize {
  return async (headers) => {
    const credentials = findCredentials(headers);
    if (!credentials) throw unauthenticated("missing");
    const principal = await authenticateAny(authenticate, credentials.tokens);
    if (credentials.method === "cookie" && !originAllowed(headers, allowedOrigins))
      throw new AppError("forbidden", "a page of another origin may not use the cookie");
    return principal;
  };
}

/**
 * Only the `Authorization` header counts. A page of another origin needs a preflight to set it, and no preflight is
 * answered, so a request cannot be forged (CSRF). A browser that names another origin is refused all the same.
 */
export function createAuthorizeOperator(authenticate: Authenticate): Authorize {
  const authorize = createAuthorize(authenticate, new Set());
  return async (headers) => {
    if (!originAllowed(headers, new Set())) throw new AppError("forbidden", "a page of another origin may not ask");
    return authorize({ authorization: headers.authorization });
  };
}

/**
 * Browsers send the cookie with requests from any page, so that another origin must be listed. If they say what the
 * page is to us (Fetch Metadata), that decides: no page can forge it, and a proxy may have rewritten `Host`. `none` is
 * what the user typed. Older browsers send `Origin` alone, and only with some requests.
 */
export function originAllowed(headers: RequestHeaders, allowed: ReadonlySet<string>): boolean {
  const { origin, host, "sec-fetch-site": site } = headers;
  if (origin !== undefined && allowed.has(origin)) return true;
  if (site !== undefined) return site === "same-origin" || site === "none";
  if (origin === undefined) return true;
  if (host === undefined || !URL.canParse(origin)) return false;
  const page = new URL(origin);
  // A proxy may add the port that a browser leaves out.
  return page.host !== "" && page.host === parseUrl(`${page.protocol}//${host}`)?.host;
}
