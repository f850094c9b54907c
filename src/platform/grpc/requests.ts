import { fromBinary } from "@bufbuild/protobuf";
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
