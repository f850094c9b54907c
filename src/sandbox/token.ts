import { SignJWT } from "jose";

/** Issues HS256 access tokens, as an identity provider would; good for `lifetimeMs`. */
export function createIssueToken(secret: string, lifetimeMs: number): (user: string) => Promise<string> {
  const key = new TextEncoder().encode(secret);
  return (user) =>
    new SignJWT({})
      .setProtectedHeader({ alg: "HS256", typ: "JWT" })
      .setSubject(user)
      .setIssuedAt()
      .setExpirationTime(new Date(Date.now() + lifetimeMs))
      .sign(key);
}
