import type { Byline } from "../../contracts/timelines.js";
import { encodeId } from "../../kernel/ids.js";

/**
 * Values of the copy of whom a user follows, which is beside the user's home. Users to whom a reply was judged are
 * noted in it: if their follow changes, the home is not complete any more, and its next read rebuilds it.
 */
export const FOLLOWED = "1";
/** The user is followed, and a reply to them is in the home. */
export const ANSWERED = "2";
/** The user is not followed, and a reply to them was left out. */
const LEFT_OUT = "0";

/** Field with the number of users noted as {@link LEFT_OUT}. */
export const LEFT_OUT_COUNT = "~left";
/** Maximum number of users noted as {@link LEFT_OUT}. Once it is reached, a reply to anybody may have been left out. */
export const MAX_LEFT_OUT = 1_000;

/** Judges replies for one home, and notes to whom they are. */
export class Follows {
  readonly #values: Map<string, string>;
  #leftOut = 0;

  constructor(
    private readonly user: string,
    following: Iterable<string>,
  ) {
    this.#values = new Map([...following].map((followed) => [followed, FOLLOWED]));
  }

  /** Returns true unless the drop is a reply to somebody whom the user does not follow. */
  shows({ author, parent }: Byline): boolean {
    if (parent === undefined || author === this.user || parent === this.user) return true;
    const value = this.#values.get(parent);
    if (value === FOLLOWED) this.#values.set(parent, ANSWERED);
    else if (value === undefined && this.#leftOut < MAX_LEFT_OUT) {
      this.#values.set(parent, LEFT_OUT);
      this.#leftOut++;
    }
    return value === FOLLOWED || value === ANSWERED;
  }

  /** Returns the users whom the copy names. */
  users(): string[] {
    return [...this.#values.keys()];
  }

  /** Returns the fields of the copy with their values. */
  fields(): [field: string, value: string][] {
    const users = [...this.#values].map(([user, value]): [string, string] => [encodeId(user), value]);
    return [...users, [LEFT_OUT_COUNT, String(this.#leftOut)]];
  }
}
