export const AFTER_OPTION = "--after <place>";

/** The place at which a job that was stopped or killed continues: that of the first step that is not done. */
export class Resumable<Step> {
  readonly #open = new Set<Step>();
  #last: Step | undefined;

  /** A run that continues at the place of a step begins with this step; "": the step has no place. */
  constructor(
    private readonly after: string | undefined,
    private readonly placeOf: (step: Step) => string,
  ) {}

  /** Hands out the steps, in their order. */
  async *taken(steps: AsyncIterable<Step> | Iterable<Step>): AsyncGenerator<Step> {
    for await (const step of steps) {
      this.#open.add(step);
      this.#last = step;
      yield step;
    }
  }

  done(step: Step): void {
    this.#open.delete(step);
  }

  get place(): string | undefined {
    const [step = this.#last] = this.#open;
    return (step === undefined ? this.after : this.placeOf(step)) || undefined;
  }

  hint(): string {
    return this.place === undefined ? "" : `; to continue: --after ${this.place}`;
  }
}
