import { type DescMessage, fromBinary } from "@bufbuild/protobuf";
import { type AppError, invalid } from "../../kernel/errors.js";
import { messageTypes } from "./reflection.js";

/** Checks the fields of the request itself: no nested message has an int64. */
export function int64Fault(path: string, bytes: Buffer): AppError | undefined {
  const [, service = "", name] = path.split("/");
  const type = messageTypes()
    .getService(service)
    ?.methods.find((method) => method.name === name)?.input;
  if (!type) return undefined;
  const request = fromBinary(type, bytes) as unknown as Readonly<Record<string, unknown>>;
  const beyond = type.fields.find(({ localName }) => isBeyond(request[localName]));
  return beyond && invalid(beyond.name, `must be between -${Number.MAX_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}`);
}

const isBeyond = (value: unknown): boolean => typeof value === "bigint" && !Number.isSafeInteger(Number(value));

/**
 * Reads an answer in which a number is beyond the safe integers, too: the item that has it is for the caller to leave out.
 */
export function decodeResponse<Response>(path: string, bytes: Buffer, decode: (bytes: Buffer) => Response): Response {
  try {
    return decode(bytes);
  } catch (error) {
    const [, service = "", name] = path.split("/");
    const type = messageTypes()
      .getService(service)
      ?.methods.find((method) => method.name === name)?.output;
    if (!type) throw error;
    return plain(fromBinary(type, bytes), type) as Response;
  }
}

/** Shapes a message as generated code does; a number that is not safe stays near what it is. */
function plain(message: object, { fields }: DescMessage): object {
  const values = message as Readonly<Record<string, unknown>>;
  return Object.fromEntries(
    fields.map((field) => {
      const shaped = (value: unknown): unknown => {
        if (typeof value === "bigint") return Number(value);
        return field.message && value ? plain(value, field.message) : value;
      };
      const value = values[field.localName];
      return [field.name, Array.isArray(value) ? value.map(shaped) : shaped(value)];
    }),
  );
}
