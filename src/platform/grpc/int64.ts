import { type DescMessage, fromBinary } from "@bufbuild/protobuf";
import type { ServiceDefinition } from "@grpc/grpc-js";
import { type AppError, invalid } from "../../kernel/errors.js";
import { messageTypes } from "./reflection.js";

/**
 * Generated code throws at an int64 beyond the safe integers, and gRPC would answer INTERNAL. Here such a request is read
 * as the error that `unary` answers.
 */
export function readingInt64(service: ServiceDefinition): ServiceDefinition {
  const methods = Object.entries(service).map(([name, method]) => {
    const requestDeserialize = (bytes: Buffer): unknown => {
      try {
        return method.requestDeserialize(bytes);
      } catch (error) {
        const fault = int64Fault(method.path, bytes);
        if (fault) return fault;
        throw error;
      }
    };
    return [name, { ...method, requestDeserialize }];
  });
  return Object.fromEntries(methods) as ServiceDefinition;
}

/** Checks the fields of the request itself: no nested message has an int64. */
function int64Fault(path: string, bytes: Buffer): AppError | undefined {
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

/** As generated code shapes a message; a number that is not safe stays near what it is. */
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
