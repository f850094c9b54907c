import type { DropDetails } from "../../src/gen/avion/posts.js";
import { Visibility } from "../../src/gen/avion/posts.js";
import { onceIn, REPOST_WINDOW } from "./reposts-once.js";
import { newestFirst } from "./world.js";

/** A drop as the model keeps it. */
export interface ModelDrop {
  readonly drop_id: string;
  readonly created_at: number;
  readonly author: string;
  readonly visibility: Visibility;
  readonly recipients: readonly string[];
  /** Author of the parent. */
  readonly parent?: string | undefined;
  readonly original?: ModelDrop | undefined;
}

export const modelDrop = (
  { drop_id, user_id, created_at, visibility, recipients }: DropDetails,
  more: Pick<ModelDrop, "parent" | "original"> = {},
): ModelDrop => ({ drop_id, created_at, author: user_id, visibility, recipients, ...more });

/** A list of `owner`, computed from all drops without the service's code. */
export class ListModel {
  readonly drops = new Map<string, ModelDrop>();
  readonly members = new Set<string>();
  readonly followed = new Set<string>();
  /** Users whose drops the owner does not see. */
  readonly hidden = new Set<string>();

  constructor(private readonly owner: string) {}

  /** A deletion takes the reposts of a drop with it. */
  remove(id: string): void {
    for (const { drop_id, original } of [...this.drops.values()])
      if (drop_id === id || original?.drop_id === id) this.drops.delete(drop_id);
  }

  /** Ids of the drops that pages show, newest first: of a drop and its reposts the newest in so many places. */
  shown(repostWindow = REPOST_WINDOW): string[] {
    const entries = [...this.drops.values()]
      .filter((drop) => this.sees(drop))
      .sort(newestFirst)
      .map(({ drop_id, created_at, author, original }) => {
        return { drop: drop_id, score: created_at, by: { author, ...(original && { repostOf: original.drop_id }) } };
      });
    return onceIn(entries, repostWindow).map(({ drop }) => drop);
  }

  /** Tells whether the owner sees a drop now. */
  sees({ author, visibility, recipients, parent, original }: ModelDrop): boolean {
    const { owner, members, followed, hidden } = this;
    if (!members.has(author)) return false;
    if (visibility === Visibility.DIRECT) {
      return author === owner || (followed.has(author) && !hidden.has(author) && recipients.includes(owner));
    }
    if (author === owner) return true;
    const isAnswer = original === undefined && parent !== undefined && parent !== author;
    if (hidden.has(author) || (original && hidden.has(original.author)) || (isAnswer && hidden.has(parent)))
      return false;
    if (isAnswer && parent !== owner && !members.has(parent)) return false;
    return visibility !== Visibility.FOLLOWERS || followed.has(author);
  }
}
