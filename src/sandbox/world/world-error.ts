/** What a request to the world can be refused for. */
export type WorldErrorCode = "invalid" | "unknown" | "conflict";

/** A refusal that names the field at fault, in the words of the wire. */
export class WorldError extends Error {
  override readonly name = "WorldError";

  constructor(
    readonly code: WorldErrorCode,
    readonly field: string,
    fault: string,
  ) {
    super(`${field}: ${fault}`);
  }
}

/** Refuses a value of a field. */
export function invalid(field: string, fault: string): WorldError {
  return new WorldError("invalid", field, fault);
}
