import { z } from "zod";
import { AppError } from "../kernel/errors.js";
import { faultInWords } from "../kernel/fields.js";
import { idFault, MAX_ID_BYTES, RESERVED_DROP_ID } from "../kernel/ids.js";

/** The faults are bounded, since all those of a list may need far more memory than the input. */
const MAX_FAULTS = 8;
const MAX_FAULT_CHARACTERS = 120;

export const MAX_RECIPIENTS = 1_000;
export const MAX_MENTIONS = 50;

/** `superRefine` makes closures for each value. */
export const userId = z
  .string()
  .refine((value) => idFault(value) === undefined, { error: ({ input }) => idFault(String(input)) })
  .meta({ minLength: 1, maxLength: MAX_ID_BYTES });

export const dropId = userId.refine((value) => value !== RESERVED_DROP_ID, {
  message: `must not be ${RESERVED_DROP_ID}`,
});

/** `items` is the JSON Schema of an element. */
export function boundedList<Element>(
  most: number,
  faultOf: (element: unknown) => string | undefined,
  items: Readonly<Record<string, unknown>>,
) {
  // JSON Schema describes a list; the elements are checked below.
  const list = z.unknown().meta({ type: "array", maxItems: most, items });
  return list.transform((value, context): Element[] => {
    const refuse = (message: string, path: number[] = []): void => context.addIssue({ code: "custom", message, path });
    if (!Array.isArray(value)) refuse("must be a list");
    else if (value.length > most) refuse(`must have at most ${most} entries`);
    else {
      let faults = 0;
      for (let index = 0; index < value.length && faults < MAX_FAULTS; index++) {
        const fault = faultOf(value[index]);
        if (fault === undefined) continue;
        refuse(fault, [index]);
        faults++;
      }
      if (faults === 0) return value as Element[];
    }
    return z.NEVER;
  });
}

export const userIds = (most: number) =>
  boundedList<string>(most, (element) => (typeof element === "string" ? idFault(element) : "must be a string"), {
    type: "string",
    minLength: 1,
    maxLength: MAX_ID_BYTES,
  });

function faultsOf({ issues }: z.ZodError, whole: string): string {
  return issues
    .slice(0, MAX_FAULTS)
    .map(({ path, message }) => `${path.join(".") || whole}: ${message}`.slice(0, MAX_FAULT_CHARACTERS))
    .join("; ");
}

/** `whole` names the value in a fault that is of none of its fields. */
export function understood<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  whole = "payload",
): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  // The input is parsed again for the words: with options the schema takes twice as long.
  const { error = parsed.error } = schema.safeParse(value, { error: faultInWords });
  throw new AppError("invalid", faultsOf(error, whole));
}

/** Makes a function of an operator's request, which rejects with AppError `invalid` if that is not of the schema. */
export const taking =
  <Schema extends z.ZodType, Answer>(schema: Schema, answer: (asked: z.output<Schema>) => Promise<Answer>) =>
  async (request: unknown): Promise<Answer> =>
    answer(understood(schema, request, "request"));
