/** The one gRPC client of the tests: calls a generated service over a generated client of it. */
export { type Calls, callsOf } from "../../src/sandbox/world/world.grpc.js";
