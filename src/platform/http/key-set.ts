import { createLocalJWKSet, type JSONWebKeySet } from "jose";
import { SECOND } from "../../kernel/time.js";
import { createOutboundFetch } from "./outbound.js";

const TIMEOUT_MS = 5 * SECOND;

/**
 * Fetches the public keys that sign access tokens. A redirect could lead to the keys of others; a server that answers
 * without any key would make every token invalid.
 *
 * @throws Error for an answer that holds no keys
 */
export async function fetchKeySet(url: string) {
  const response = await createOutboundFetch()(url, {
    redirect: "manual",
    headers: { accept: "application/json, application/jwk-set+json" },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (response.status !== 200) {
    await response.body?.cancel();
    throw new Error(`HTTP ${response.status}`);
  }
  const set = (await response.json()) as JSONWebKeySet;
  const find = createLocalJWKSet(set);
  if (set.keys.length === 0) throw new Error("the answer holds no keys");
  return { find, size: set.keys.length };
}

export type KeySet = Awaited<ReturnType<typeof fetchKeySet>>;
