import { InvalidArgumentError, Option } from "commander";

export const JSON_OPTION = new Option("--json", "print JSON");

/** Sets the exit code that the work resolves to. The process is not ended, so that its whole output is written. */
export const exitWith =
  <Args extends unknown[]>(work: (...args: Args) => Promise<number>) =>
  async (...args: Args): Promise<void> => {
    process.exitCode = await work(...args);
  };

export function wholeNumber({
  min = 0,
  max,
}: {
  readonly min?: number;
  readonly max: number;
}): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`must be a whole number from ${min} to ${max}`);
  };
}
