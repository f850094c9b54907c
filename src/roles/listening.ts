import { oneLine } from "../kernel/errors.js";

/** Neither Node nor grpc-js names the variable that holds the address. */
export async function listening<Server>(setting: string, server: Promise<Server>): Promise<Server> {
  try {
    return await server;
  } catch (error) {
    const text = oneLine(error);
    const reason = text.includes("EADDRINUSE") ? "another process uses this port (EADDRINUSE)" : text;
    throw new Error(`${setting}: cannot listen there: ${reason}`, { cause: error });
  }
}
