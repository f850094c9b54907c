import { z } from "zod";

type Fetch = (url: string | URL, init: RequestInit) => Promise<Response>;

const PROXIES = ["https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"] as const;

export const usesProxy = (): boolean => PROXIES.some((name) => process.env[name]);

/** Names the variables of a proxy that cannot be used. */
export function proxyFaults(env: NodeJS.ProcessEnv): string[] {
  const proxy = z.url({ protocol: /^https?$/ });
  return PROXIES.filter((name) => env[name] && !proxy.safeParse(env[name]).success).map(
    (name) => `${name}: must be a URL of http:// or https://`,
  );
}

/**
 * Fetches from servers of others, through the proxy of `https_proxy` or `http_proxy` unless `no_proxy` names the host.
 * Node's own fetch knows these variables from Node 24 on, and only if it is told to. Connections are shared within
 * the returned function.
 */
export function createOutboundFetch(): Fetch {
  let proxied: Promise<Fetch> | undefined;
  return async (url, init) => {
    if (!usesProxy()) return fetch(url, init);
    proxied ??= loadProxied();
    return (await proxied)(url, init);
  };
}

/** The proxy answered that it does not reach the server, or does not let us. */
export const refusedByProxy = (error: unknown): boolean =>
  error instanceof Error && error.message.startsWith("Proxy response");

async function loadProxied(): Promise<Fetch> {
  const undici = await import("undici");
  const dispatcher = new undici.EnvHttpProxyAgent();
  const call = undici.fetch as unknown as (url: string | URL, init: object) => Promise<Response>;
  return (url, init) => call(url, { ...init, dispatcher });
}
