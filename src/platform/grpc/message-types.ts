import { readFileSync } from "node:fs";
import {
  createFileRegistry,
  type DescMessage,
  type DescMethod,
  type FileRegistry,
  fromBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { type AppError, invalid } from "../../kernel/errors.js";

const IMAGE = new URL("../../gen/image.binpb", import.meta.url);

/** The types of all messages, read from the image of the build at the first use: most processes never need them. */
export class MessageTypes {
  #registry: FileRegistry | undefined;

  get registry(): FileRegistry {
    this.#registry ??= createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(IMAGE)));
    return this.#registry;
  }

  /** Checks the fields of the request itself: no nested message has an int64. */
  int64Fault(path: string, bytes: Buffer): AppError | undefined {
    const type = this.#methodOf(path)?.input;
    if (!type) return undefined;
    const request = fromBinary(type, bytes) as unknown as Readonly<Record<string, unknown>>;
    const beyond = type.fields.find(({ localName }) => isBeyond(request[localName]));
    return beyond && invalid(beyond.name, `must be between -${Number.MAX_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}`);
  }

  /**
   * Reads an answer in which a number is beyond the safe integers, too: the item that has it is for the caller to leave
   * out.
   */
  decodeResponse<Response>(path: string, bytes: Buffer, decode: (bytes: Buffer) => Response): Response {
    try {
      return decode(bytes);
    } catch (error) {
      const type = this.#methodOf(path)?.output;
      if (!type) throw error;
      return plain(fromBinary(type, bytes), type) as Response;
    }
  }

  #methodOf(path: string): DescMethod | undefined {
    const [, service = "", name] = path.split("/");
    return this.registry.getService(service)?.methods.find((method) => method.name === name);
  }
}

const isBeyond = (value: unknown): boolean => typeof value === "bigint" && !Number.isSafeInteger(Number(value));

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

/** Returns the name of a method without its service. */
export const nameOf = ({ path }: { readonly path: string }): string => path.slice(path.lastIndexOf("/") + 1);
