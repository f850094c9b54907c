import { type DescFile, type FileRegistry, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { type Server, type ServerDuplexStream, status } from "@grpc/grpc-js";
import {
  ServerReflectionService as ReflectionV1,
  type ServerReflectionRequest,
  type ServerReflectionResponse,
} from "../../gen/grpc/reflection/v1/reflection.js";
import { ServerReflectionService as ReflectionV1Alpha } from "../../gen/grpc/reflection/v1alpha/reflection.js";
import type { MessageTypes } from "./message-types.js";

type Talk = ServerDuplexStream<ServerReflectionRequest, ServerReflectionResponse>;

/** Both versions of the protocol; @grpc/reflection leaves out imports (grpc-node issues 3018 and 3034). */
export function addReflection(server: Server, services: readonly string[], types: MessageTypes) {
  const open = new Set<Talk>();
  const talk = (call: Talk): void => {
    open.add(call);
    call.once("close", () => open.delete(call));
    call.on("data", (request: ServerReflectionRequest) => {
      if (call.writableEnded) return;
      // A client that takes no answers is asked for no more requests.
      if (!call.write(answer(types.registry, services, request))) call.pause();
    });
    call.on("drain", () => call.resume());
    call.on("end", () => call.end());
    call.on("error", () => undefined);
  };
  server.addService(ReflectionV1, { serverReflectionInfo: talk });
  server.addService(ReflectionV1Alpha, { serverReflectionInfo: talk });
  return {
    /** Ends open streams, which would keep a server from closing. */
    close: (): void => {
      for (const call of open) call.end();
    },
  };
}

function answer(
  registry: FileRegistry,
  services: readonly string[],
  request: ServerReflectionRequest,
): ServerReflectionResponse {
  const reply = { valid_host: request.host, original_request: request } as ServerReflectionResponse;
  if (request.list_services !== undefined) {
    return { ...reply, list_services_response: { service: services.map((name) => ({ name })) } };
  }
  const { file_by_filename: name, file_containing_symbol: symbol } = request;
  const file = name === undefined ? fileOf(registry, symbol ?? "") : registry.getFile(name);
  if (file !== undefined) {
    const files = [...withImports(file)].map(({ proto }) => Buffer.from(toBinary(FileDescriptorProtoSchema, proto)));
    return { ...reply, file_descriptor_response: { file_descriptor_proto: files } };
  }
  const error_message = `${symbol ?? name ?? "what was asked"} is not known here`;
  return { ...reply, error_response: { error_code: status.NOT_FOUND, error_message } };
}

/** A symbol is a type, a service, or a method of one. */
function fileOf(registry: FileRegistry, symbol: string): DescFile | undefined {
  const dot = symbol.lastIndexOf(".");
  const service = registry.getService(symbol.slice(0, dot));
  const isMethod = service?.methods.some(({ name }) => name === symbol.slice(dot + 1));
  return (isMethod ? service : registry.get(symbol))?.file;
}

function withImports(file: DescFile, seen = new Set<DescFile>()): Set<DescFile> {
  if (seen.has(file)) return seen;
  seen.add(file);
  for (const imported of file.dependencies) withImports(imported, seen);
  return seen;
}
