import { InvalidArgumentError } from "commander";

/** Parses an option that takes a whole number up to `max`. */
export function wholeNumber(max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value <= max) return value;
    throw new InvalidArgumentError(`must be a whole number up to ${max}`);
  };
}
