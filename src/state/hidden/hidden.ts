import { textBytes } from "../../contracts/caches.js";
import type { Byline } from "../../contracts/timelines.js";

/** Hides all of a user's drops (a block or a mute), or only their reposts (a mute). */
export type Hiding = "all" | "reposts";

/** How drops of a target are hidden now; undefined: not at all. `until` is in ms since the epoch; undefined: for good. */
export interface TimedHiding {
  readonly hiding: Hiding | undefined;
  readonly until?: number | undefined;
}

/** Users whose drops a user does not see. */
export interface HiddenUsers {
  readonly size: number;
  /** True if the answer must not be cached, since a mute ends before a cached answer does. */
  readonly endsSoon?: boolean;
  /** When the answer ends, since a mute does or Redis forgets it, ms since the epoch. Default: not by itself. */
  readonly until?: number | undefined;
  /** Resolves to an object that decides about these bylines. */
  among(bylines: Iterable<Byline>): Promise<Pick<Hidden, "hides" | "hidingOf">>;
}

/** Memory of an entry of a map. */
const TARGET_BYTES = 64;

export class Hidden implements HiddenUsers {
  constructor(
    private readonly user: string,
    private readonly targets: ReadonlyMap<string, Hiding | undefined>,
    readonly endsSoon = false,
    readonly until?: number | undefined,
  ) {}

  get size(): number {
    return this.targets.size;
  }

  /** Upper bound of the memory of the users, bytes. */
  get bytes(): number {
    let bytes = 0;
    for (const target of this.targets.keys()) bytes += TARGET_BYTES + textBytes(target);
    return bytes;
  }

  async among(): Promise<Hidden> {
    return this;
  }

  hidingOf(target: string): Hiding | undefined {
    return this.targets.get(target);
  }

  /**
   * Returns true if the viewer does not see a drop with this byline. Nobody's own drops and reposts are hidden from
   * themselves.
   */
  hides({ author, original, parent }: Byline): boolean {
    if (this.targets.size === 0 || author === this.user) return false;
    const hiding = this.targets.get(author);
    if (parent !== undefined && this.targets.get(parent) === "all") return true;
    if (hiding === "all" || original === undefined) return hiding === "all";
    return hiding === "reposts" || this.targets.get(original) === "all";
  }
}

type ReadHidings = (targets: readonly string[]) => Promise<readonly (Hiding | undefined)[]>;

/** Hidden users of a user with too many of them to read: only the authors on a page are looked up. */
export class ManyHidden implements HiddenUsers {
  readonly endsSoon: boolean;
  readonly until: number | undefined;

  constructor(
    private readonly user: string,
    readonly size: number,
    private readonly read: ReadHidings,
    { endsSoon = false, until }: Pick<HiddenUsers, "endsSoon" | "until"> = {},
  ) {
    this.endsSoon = endsSoon;
    this.until = until;
  }

  async among(bylines: Iterable<Byline>): Promise<Hidden> {
    const asked = new Set<string>();
    for (const { author, original, parent } of bylines) {
      if (author === this.user) continue;
      for (const user of [author, original, parent]) if (user !== undefined) asked.add(user);
    }
    const targets = [...asked];
    const hidings = await this.read(targets);
    return new Hidden(this.user, new Map(targets.map((target, index) => [target, hidings[index]])));
  }
}
