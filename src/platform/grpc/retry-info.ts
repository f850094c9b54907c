import { BinaryWriter } from "@bufbuild/protobuf/wire";
import { Metadata } from "@grpc/grpc-js";
import { type AppError, PRESENTATION } from "../../kernel/errors.js";
import { SECOND } from "../../kernel/time.js";

const RETRY_AFTER = "retry-after-ms";

/** Returns the time to wait that trailers state, ms. */
export function retryAfterOf(trailers: Metadata): number | undefined {
  const waitMs = Number(trailers.get(RETRY_AFTER)[0]);
  return waitMs > 0 ? waitMs : undefined;
}

/** Trailers of a refusal. If it says when to try again, clients of every kind are told in their own way. */
export function trailersOf({ code, publicMessage, retryAfterMs }: AppError): Metadata {
  const metadata = new Metadata();
  if (retryAfterMs === undefined) return metadata;
  const waitMs = Math.ceil(retryAfterMs);
  metadata.set(RETRY_AFTER, `${waitMs}`);
  // A client with a retry policy waits as long (gRPC A6, "Pushback").
  metadata.set("grpc-retry-pushback-ms", `${waitMs}`);
  // Clients of Google's libraries read it (gRPC's "richer error model").
  metadata.set("grpc-status-details-bin", encodeStatus(PRESENTATION[code].grpcStatus, publicMessage, waitMs));
  return metadata;
}

const RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo";

/** The tag of a field in the wire format: its number, and 0 for a varint or 2 for bytes. */
const tag = (field: number, type: 0 | 2): number => field * 8 + type;

/** Encodes a google.rpc.Status with one google.rpc.RetryInfo in its details. */
function encodeStatus(code: number, message: string, waitMs: number): Buffer {
  const [seconds, ms] = [Math.floor(waitMs / SECOND), waitMs % SECOND];
  const delay = new BinaryWriter()
    .uint32(tag(1, 0))
    .int64(seconds)
    .uint32(tag(2, 0))
    .int32(ms * 1_000_000);
  const retryInfo = new BinaryWriter().uint32(tag(1, 2)).bytes(delay.finish());
  const any = new BinaryWriter().uint32(tag(1, 2)).string(RETRY_INFO).uint32(tag(2, 2)).bytes(retryInfo.finish());
  const status = new BinaryWriter().uint32(tag(1, 0)).int32(code).uint32(tag(2, 2)).string(message);
  return Buffer.from(status.uint32(tag(3, 2)).bytes(any.finish()).finish());
}
