import { SignJWT } from "jose";
import { JWT_SECRET } from "./service.js";

/** Claims of a test token; `exp` null leaves it out. */
export type TokenOptions = {
  readonly secret?: string;
  /** Seconds since the epoch. */
  readonly exp?: number | null;
  /** Seconds since the epoch; now, if it is unset. */
  readonly iat?: number;
  readonly claims?: Readonly<Record<string, unknown>>;
};

/** A token of this user, signed with HS256, good for an hour unless told otherwise. */
export function tokenOf(sub: string | undefined, options: TokenOptions = {}): Promise<string> {
  const { secret = JWT_SECRET, exp = seconds() + 3_600, iat = seconds(), claims = {} } = options;
  const jwt = new SignJWT({ ...claims, ...(sub === undefined ? {} : { sub }), ...(exp === null ? {} : { exp }) });
  return jwt.setProtectedHeader({ alg: "HS256", typ: "JWT" }).setIssuedAt(iat).sign(new TextEncoder().encode(secret));
}

/** A token that nobody signed. */
export function unsignedToken(
  sub: string,
  header: Readonly<Record<string, unknown>> = { alg: "none", typ: "JWT" },
): string {
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  return `${part(header)}.${part({ sub, exp: seconds() + 3_600 })}.`;
}

/** Now, as tokens tell time. */
export function seconds(): number {
  return Math.floor(Date.now() / 1_000);
}
