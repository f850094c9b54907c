import { bylineOf } from "../contracts/timelines.js";
import { Hidden, type Hiding } from "../records/hidden.js";
import type { Content, Notification } from "./notification.js";

/**
 * Relations of a stream's user that have changed lately. Fan-out judged what it notified before: only that is judged
 * again which it may have notified at the same time, or which a resume repeats.
 */
export class Hidings {
  #targets: Map<string, Hiding | undefined> | undefined;

  constructor(private readonly user: string) {}

  note({ hiding: change }: Notification): void {
    if (!change) return;
    this.#targets ??= new Map();
    this.#targets.set(change.target, change.hiding);
  }

  /** Changes may have been missed: fan-out has judged what comes from now on by them. */
  forget(): void {
    this.#targets = undefined;
  }

  hides({ by }: Content): boolean {
    return this.#targets !== undefined && by !== undefined && new Hidden(this.user, this.#targets).hides(bylineOf(by));
  }
}
