/** Streams of local and global of one gateway, whose viewers hide whom a test says. */
import { SHARED_CHANGED } from "../../src/contracts/subjects.js";
import { AppError } from "../../src/kernel/errors.js";
import { Hidden, type Hiding } from "../../src/state/hidden/hidden.js";
import { connection, listen, type Raw, type Running, start } from "./gateway.js";

type Options = Parameters<typeof start>[0];

/** Publishes a message of SHARED; yields its sequence. */
export async function tell(body: object): Promise<number> {
  return (await connection.jetstream().publish(SHARED_CHANGED, JSON.stringify(body))).seq;
}

export const posted = (drop: string, by = "ada", shown_in: "local" | "global" = "local"): Promise<number> =>
  tell({ event: "new_drop", drop_id: drop, created_at: 1_700_000_000_000, shown_in, by });

export const deletedDrop = (drop: string, more: object = { shown_in: "local", by: "ada" }): Promise<number> =>
  tell({ event: "drop_deleted", drop_id: drop, ...more });

export const editedDrop = (
  drop: string,
  revision: number,
  more: object = { shown_in: "local", by: "ada" },
): Promise<number> => tell({ event: "drop_edited", drop_id: drop, revision, ...more });

/** Users whom each viewer hides, as Redis and the users service would say. */
export class Relations {
  readonly #hidden = new Map<string, Map<string, Hiding>>();
  isAway = false;
  reads = 0;
  /** When the answers end, ms since the epoch. */
  until: number | undefined;

  readonly read = async (user: string): Promise<Hidden> => {
    this.reads++;
    if (this.isAway) throw new AppError("unavailable", "the users service is away");
    return new Hidden(user, new Map(this.#hidden.get(user)), false, this.until);
  };

  set(user: string, target: string, hiding: Hiding | undefined): void {
    const targets = this.#hidden.get(user) ?? new Map();
    if (hiding === undefined) targets.delete(target);
    else targets.set(target, hiding);
    this.#hidden.set(user, targets);
  }

  /** Changes whom a viewer hides, and says so. */
  async change(user: string, target: string, hiding: Hiding | undefined): Promise<void> {
    this.set(user, target, hiding);
    await tell({ event: "~hiding", user_id: user });
  }
}

export async function startShared(options: Options = {}): Promise<{ running: Running; relations: Relations }> {
  const relations = new Relations();
  return { running: await start({ readHidden: relations.read, ...options }), relations };
}

/** Opens a stream of local or global. */
export const watch = (running: Running, user: string, timeline = "local", lastEventId?: string): Promise<Raw> =>
  listen({ ...running, url: running.url.replace("/home", `/${timeline}`) }, user, lastEventId);
