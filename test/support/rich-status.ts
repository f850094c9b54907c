import { create, createFileRegistry, fromBinary, type JsonValue, toJson } from "@bufbuild/protobuf";
import {
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
  file_google_protobuf_any,
  file_google_protobuf_duration,
} from "@bufbuild/protobuf/wkt";
import type { Metadata } from "@grpc/grpc-js";

const field = (name: string, number: number, type: number, more: object = {}) => ({
  ...{ name, jsonName: name, number, type },
  ...more,
});
const [INT32, STRING, MESSAGE, REPEATED] = [5, 9, 11, 3];

/** The messages of https://github.com/googleapis/googleapis/tree/master/google/rpc that a refusal has. */
const rpc = create(FileDescriptorProtoSchema, {
  name: "google/rpc/refusal.proto",
  package: "google.rpc",
  syntax: "proto3",
  dependency: ["google/protobuf/any.proto", "google/protobuf/duration.proto"],
  messageType: [
    {
      name: "Status",
      field: [
        field("code", 1, INT32),
        field("message", 2, STRING),
        field("details", 3, MESSAGE, { label: REPEATED, typeName: ".google.protobuf.Any" }),
      ],
    },
    { name: "RetryInfo", field: [field("retry_delay", 1, MESSAGE, { typeName: ".google.protobuf.Duration" })] },
  ],
});

const registry = createFileRegistry(
  create(FileDescriptorSetSchema, {
    file: [file_google_protobuf_any.proto, file_google_protobuf_duration.proto, rpc],
  }),
);

/** The google.rpc.Status in the trailers of a call, as JSON. */
export function richStatusOf(trailers: Metadata): JsonValue {
  const status = registry.getMessage("google.rpc.Status");
  const [bytes] = trailers.get("grpc-status-details-bin");
  if (status === undefined || !Buffer.isBuffer(bytes)) throw new Error("there is no status");
  return toJson(status, fromBinary(status, bytes), { registry });
}
