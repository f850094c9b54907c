export interface ServerUrl {
  readonly protocol: string;
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
}

const DEFAULT_PORTS: Readonly<Record<string, number>> = {
  "redis:": 6379,
  "rediss:": 6379,
  "nats:": 4222,
  "tls:": 4222,
  "postgres:": 5432,
  "postgresql:": 5432,
  "http:": 80,
  "https:": 443,
};

export function parseServerUrl(text: string): ServerUrl {
  const url = new URL(text);
  return {
    protocol: url.protocol,
    host: decodeURIComponent(url.hostname).replace(/^\[(.*)\]$/, "$1"),
    port: Number(url.port) || (DEFAULT_PORTS[url.protocol] ?? 0),
    user: decodeURIComponent(url.username),
    password: decodeURIComponent(url.password),
  };
}

/** host:port; a whole URL may hold a password and must not be printed. */
export function printableAddress(url: string): string {
  const { host, port } = parseServerUrl(url);
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

export const printableAddresses = (urls: readonly string[]): string => urls.map(printableAddress).join(",");
