/** The field of the body, the query or the headers is wrong. */
interface Fault {
  readonly field: string;
  readonly detail: string;
}

/** A refusal is sent as application/problem+json (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    detail: string,
    readonly more: { readonly errors?: readonly Fault[]; readonly headers?: Readonly<Record<string, string>> } = {},
  ) {
    super(detail);
  }
}

export const badRequest = (errors: readonly Fault[]): Problem =>
  new Problem(400, errors.map(({ field, detail }) => `${field}: ${detail}`).join("; "), { errors });
