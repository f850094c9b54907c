import { ALL_EDGE_PARTS, EDGES_PREFIX } from "../../contracts/keys.js";
import { decodeId } from "../../kernel/ids.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { EdgeChange } from "../../records/fences.js";

/** Tokens hold no "~": other fields of a part say when an author's unfollowers and deletions were recorded. */
const FIELD = /^([^:~]+):([^:~]+)$/;
const VALUE = /^(\d+):([01])/;

/** Yields the newest versions of all edges that the fences hold: also changes that the log may have lost. */
export async function* readFencedEdges({ command }: Pick<Scripts, "command">): AsyncGenerator<EdgeChange> {
  for (const part of ALL_EDGE_PARTS) {
    const held = await command("hgetall", (client) => client.hgetall(EDGES_PREFIX + part));
    for (const [field, value] of Object.entries(held)) {
      const [, following, follower] = FIELD.exec(field) ?? [];
      const [, version, state] = VALUE.exec(value) ?? [];
      if (following === undefined || follower === undefined || version === undefined) continue;
      yield {
        follower: decodeId(follower),
        following: decodeId(following),
        version: Number(version),
        follows: state === "1",
      };
    }
  }
}
