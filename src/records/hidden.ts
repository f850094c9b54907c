import type { Byline } from "../contracts/timelines.js";

/** A block or a mute hides all of a user's drops, or only what they repost. */
export type Hiding = "all" | "reposts";

export class Hidden {
  constructor(
    private readonly user: string,
    private readonly targets: ReadonlyMap<string, Hiding | undefined>,
  ) {}

  get size(): number {
    return this.targets.size;
  }

  hidingOf(target: string): Hiding | undefined {
    return this.targets.get(target);
  }

  /** Nobody's own drops and reposts are hidden from themselves. */
  hides({ author, original }: Byline): boolean {
    if (this.targets.size === 0 || author === this.user) return false;
    const hiding = this.targets.get(author);
    if (hiding === "all" || original === undefined) return hiding === "all";
    return hiding === "reposts" || this.targets.get(original) === "all";
  }
}
