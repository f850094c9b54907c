import { freePort } from "../../src/sandbox/brokers/index.js";

const given = new Set<number>();

/**
 * A port that was free a moment ago, and that no other call of this file gets. Outgoing connections, of which the tests
 * make thousands, do not take it.
 */
export async function newPort(): Promise<number> {
  for (;;) {
    const port = await freePort();
    if (given.has(port)) continue;
    given.add(port);
    return port;
  }
}
