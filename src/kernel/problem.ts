interface Fault {
  readonly field: string;
  readonly detail: string;
}

/** A refusal of an HTTP request, as RFC 9457 describes it. */
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
