import { readFileSync } from "node:fs";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { type FileDescriptorProto, FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { type Server, type ServerDuplexStream, status } from "@grpc/grpc-js";
import {
  ServerReflectionService as ReflectionV1,
  type ServerReflectionRequest,
  type ServerReflectionResponse,
} from "../../gen/grpc/reflection/v1/reflection.js";
import { ServerReflectionService as ReflectionV1Alpha } from "../../gen/grpc/reflection/v1alpha/reflection.js";

const IMAGE = new URL("../../gen/image.binpb", import.meta.url);

interface Index {
  readonly files: ReadonlyMap<string, FileDescriptorProto>;
  readonly symbols: ReadonlyMap<string, string>;
}

/** Both versions of the protocol; @grpc/reflection leaves out imports (grpc-node issues 3018 and 3034). */
export function addReflection(server: Server, services: readonly string[]): void {
  let index: Index | undefined;
  const talk = (call: ServerDuplexStream<ServerReflectionRequest, ServerReflectionResponse>): void => {
    call.on("data", (request: ServerReflectionRequest) => {
      index ??= readIndex();
      call.write(answer(index, services, request));
    });
    call.on("end", () => call.end());
    call.on("error", () => undefined);
  };
  server.addService(ReflectionV1, { serverReflectionInfo: talk });
  server.addService(ReflectionV1Alpha, { serverReflectionInfo: talk });
}

function answer(index: Index, services: readonly string[], request: ServerReflectionRequest): ServerReflectionResponse {
  const reply = { valid_host: request.host, original_request: request } as ServerReflectionResponse;
  if (request.list_services !== undefined) {
    return { ...reply, list_services_response: { service: services.map((name) => ({ name })) } };
  }
  const name = request.file_by_filename ?? index.symbols.get(request.file_containing_symbol ?? "");
  if (name !== undefined && index.files.has(name)) {
    const files = [...withImports(index, name)].map((file) => Buffer.from(toBinary(FileDescriptorProtoSchema, file)));
    return { ...reply, file_descriptor_response: { file_descriptor_proto: files } };
  }
  const asked = request.file_containing_symbol ?? request.file_by_filename ?? "what was asked";
  return { ...reply, error_response: { error_code: status.NOT_FOUND, error_message: `${asked} is not known here` } };
}

function withImports(index: Index, name: string, seen = new Set<FileDescriptorProto>()): Set<FileDescriptorProto> {
  const file = index.files.get(name);
  if (!file || seen.has(file)) return seen;
  seen.add(file);
  for (const imported of file.dependency) withImports(index, imported, seen);
  return seen;
}

function readIndex(): Index {
  const { file } = fromBinary(FileDescriptorSetSchema, readFileSync(IMAGE));
  const symbols = new Map<string, string>();
  for (const { name, package: scope, service, messageType, enumType } of file) {
    for (const one of service) {
      symbols.set(`${scope}.${one.name}`, name);
      for (const method of one.method) symbols.set(`${scope}.${one.name}.${method.name}`, name);
    }
    for (const one of [...messageType, ...enumType]) symbols.set(`${scope}.${one.name}`, name);
  }
  return { files: new Map(file.map((one) => [one.name, one])), symbols };
}
