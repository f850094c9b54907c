/** A token as a request carries it. */
export interface Credentials {
  readonly token: string;
  readonly method: "bearer" | "cookie";
}

const COOKIE = "access_token";

/** The headers of a request that matter here. */
export interface RequestHeaders {
  readonly authorization?: string | undefined;
  readonly cookie?: string | undefined;
  readonly origin?: string | undefined;
  readonly host?: string | undefined;
}

/** Finds the token of a request. An `Authorization` header settles it, whatever it holds: no cookie stands in for it. */
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

/**
 * Whether a page of this origin may open the stream with the user's cookie. Browsers
 * send cookies along for any page, so that a foreign one must be on the list.
 */
export function originAllowed({ origin, host }: RequestHeaders, allowed: ReadonlySet<string>): boolean {
  if (origin === undefined || allowed.has(origin)) return true;
  return host !== undefined && URL.canParse(origin) && new URL(origin).host === host.toLowerCase();
}
