import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect } from "@jest/globals";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { type Certificates, makeCertificates } from "../support/certificates.js";
import { type ConnectProxy, startConnectProxy } from "../support/connect-proxy.js";
import { openReader } from "../support/reader.js";
import { testWithStack } from "../support/stack.js";

let certificates: Certificates;
let proxy: ConnectProxy;
let keys: Server;
let token: string;

beforeEach(async () => {
  certificates = makeCertificates();
  proxy = await startConnectProxy();
  const pair = await generateKeyPair("ES256", { extractable: true });
  const set = JSON.stringify({ keys: [{ ...(await exportJWK(pair.publicKey)), kid: "k", alg: "ES256" }] });
  const { cert, key } = certificates.good;
  keys = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (_request, response) => response.end(set));
  await new Promise<void>((resolve) => keys.listen(0, "127.0.0.1", resolve));
  const claims = { sub: "ann", iss: "us", aud: "timeline", exp: Math.floor(Date.now() / 1_000) + 600 };
  token = await new SignJWT(claims).setProtectedHeader({ alg: "ES256", kid: "k" }).sign(pair.privateKey);
});

afterEach(async () => {
  keys.close();
  keys.closeAllConnections();
  await proxy.stop();
  certificates.remove();
});

const environment = (more: Readonly<Record<string, string>> = {}) => ({
  ...{ https_proxy: proxy.url, NODE_EXTRA_CA_CERTS: certificates.ca, TIMELINE_JWT_SECRET: "" },
  ...{ TIMELINE_JWT_ISSUER: "us", TIMELINE_JWT_AUDIENCE: "timeline", ...more },
  TIMELINE_JWT_JWKS_URL: `https://localhost:${(keys.address() as AddressInfo).port}/keys`,
});

testWithStack(
  "a proxy carries the calls for keys, and none to our own upstreams",
  { service: false },
  async (stack) => {
    const proxied = await stack.start({ roles: "api,gateway", env: environment() });
    const direct = await stack.start({ roles: "gateway", env: environment({ no_proxy: "localhost" }) });
    for (const { httpUrl } of [proxied, direct]) {
      const response = await fetch(`${httpUrl}/events/timeline/home`, {
        headers: { authorization: `Bearer ${token}` },
      });
      expect(response.status).toBe(200);
      await response.body?.cancel();
    }
    const reader = openReader(proxied.grpcAddress);
    stack.defer(() => reader.close());
    expect(await reader.home("ann")).toMatchObject({ degraded: false });
    expect(new Set(proxy.targets)).toEqual(new Set([new URL(environment().TIMELINE_JWT_JWKS_URL).host]));
    expect(proxy.targets.length).toBeLessThan(3);
  },
);
