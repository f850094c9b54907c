export const AFTER_OPTION = "--after <position>";

/** A job that was stopped or killed continues at the position of the first step that is not done. */
export class Resumable<Step> {
  readonly #open = new Set<Step>();
  #last: Step | undefined;

  /** A run that continues at the position of a step begins with this step; "": the step has none. */
  constructor(
    private readonly after: string | undefined,
    private readonly positionOf: (step: Step) => string,
  ) {}

  async *track(steps: AsyncIterable<Step> | Iterable<Step>): AsyncGenerator<Step> {
    for await (const step of steps) {
      this.#open.add(step);
      this.#last = step;
      yield step;
    }
  }

  done(step: Step): void {
    this.#open.delete(step);
  }

  get position(): string | undefined {
    const [step = this.#last] = this.#open;
    return (step === undefined ? this.after : this.positionOf(step)) || undefined;
  }

  hint(): string {
    return this.position === undefined ? "" : `; to continue: --after ${this.position}`;
  }
}
