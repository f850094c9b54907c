import { randomUUID } from "node:crypto";
import { continuityKey, REPLAY_LEASE_KEY } from "../contracts/keys.js";
import { SECOND } from "../kernel/time.js";
import type { Fenced } from "../platform/redis/fenced.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { Continuity, Lease } from "./ports.js";

/** So many notes are spread over a cluster by their hash tags, that every node holds some of them. */
const PARTS_OF_A_CLUSTER = 64;
const LEASE_MS = 10 * SECOND;

/** Notes on each node of Redis which server it is. */
export function createContinuity(scripts: Scripts, fenced: Fenced): Continuity {
  const parts = Array.from({ length: scripts.isCluster ? PARTS_OF_A_CLUSTER : 1 }, (_, part) => continuityKey(part));
  const note = (from: number | undefined, mended: boolean): Promise<[string, string][]> =>
    Promise.all(
      parts.map((key) => fenced.one("note-server", key, [from ?? "", mended ? "1" : "0"]) as Promise<[string, string]>),
    );
  return {
    async check(from) {
      const broken = (await note(from, false)).filter(([state]) => state === "broken");
      return broken.length === 0 ? undefined : Math.min(...broken.map(([, since]) => Number(since)));
    },
    async mended(from) {
      await note(from, true);
    },
  };
}

/** The right that a key stands for: to note and to replay, unless told otherwise. */
export function createLease(scripts: Scripts, key: string = REPLAY_LEASE_KEY): Lease {
  const owner = randomUUID();
  return {
    hold: async () => (await scripts.run("hold-lease", [key], [owner, LEASE_MS])) === 1,
    release: async () => void (await scripts.run("release-lease", [key], [owner])),
  };
}
