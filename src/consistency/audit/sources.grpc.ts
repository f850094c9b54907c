import { randomInt } from "node:crypto";
import type { Drop } from "../../gen/avion/posts.js";
import type { Upstreams } from "../../platform/grpc/upstreams.js";
import type { PublicationDeps } from "./ports.js";

/** Homes a publication is looked for in. */
const FOLLOWERS = 10;
/** Of a long list one of its first pages is looked at. */
const MOST_PAGES = 5;
/** An author has few drops of one millisecond. */
const DROPS = 20;

/** The upstreams as checks of publications ask them. */
export function createSources(
  upstreams: () => Upstreams,
  followersAPage: number,
): Pick<PublicationDeps, "sampleFollowers" | "findDrop"> {
  return {
    async sampleFollowers(author, pages) {
      const ask = (token: string) => upstreams().followers({ user: author, size: followersAPage, token });
      let page = await ask("");
      for (let skip = randomInt(Math.min(Math.max(pages, 1), MOST_PAGES)); skip > 0 && page.next !== ""; skip--)
        page = await ask(page.next);
      return someOf(page.ids, FOLLOWERS);
    },
    async findDrop(author, drop, createdAt): Promise<Drop | undefined> {
      const request = { user_id: author, limit: DROPS, max_id: "", before: createdAt + 1 };
      return (await upstreams().dropsByUser(request)).find(({ drop_id, deleted }) => drop_id === drop && !deleted);
    },
  };
}

function someOf(ids: readonly string[], count: number): string[] {
  const left = [...ids];
  const chosen: string[] = [];
  while (chosen.length < count && left.length > 0) {
    const at = randomInt(left.length);
    chosen.push(left[at] as string);
    left[at] = left.at(-1) as string;
    left.pop();
  }
  return chosen;
}
