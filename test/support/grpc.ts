import type { ServiceError } from "@grpc/grpc-js";

/** The one gRPC client of the tests: calls a generated service over a generated client of it. */
export { type Calls, callsOf } from "../../src/sandbox/world/world.grpc.js";

/** The code and the words with which a call is refused. */
export const refusal = (call: Promise<unknown>): Promise<[code: number, details: string]> =>
  call.then(
    (answer) => Promise.reject(new Error(`it answered ${JSON.stringify(answer)}`)),
    ({ code, details }: ServiceError) => [code, details],
  );
