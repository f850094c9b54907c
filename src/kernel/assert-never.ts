/** Makes the compiler check that a union was handled whole; stops loudly where it was not. */
export function assertNever(value: never): never {
  throw new Error(`unhandled case: ${JSON.stringify(value)}`);
}
