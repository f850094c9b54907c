/** The bare client of the benchmark `cold-reads`: its own process, as the service is. Its argument is the address of the posts service. */
import { on } from "node:events";
import { credentials, Metadata } from "@grpc/grpc-js";
import { PostServiceClient } from "../../../src/gen/avion/posts.js";
import { mapLimited } from "../../../src/kernel/concurrency.js";
import type { BareCalls } from "./cold-reads-shared.js";

const PATIENCE_MS = 300_000;
const client = new PostServiceClient(process.argv[2] as string, credentials.createInsecure());

process.send?.("ready");
for await (const [{ authors, calls, limit, atOnce }] of on(process, "message") as AsyncIterable<[BareCalls]>) {
  const ask = (_: unknown, number: number): Promise<void> =>
    new Promise((resolve, reject) => {
      const deadline = Date.now() + PATIENCE_MS;
      const request = { user_id: authors[number % authors.length] as string, limit, max_id: "", before: 0 };
      // No answer is kept: those of all calls would fill the heap.
      client.getDropsByUserId(request, new Metadata(), { deadline }, (error) => (error ? reject(error) : resolve()));
    });
  const begun = performance.now();
  await mapLimited(Array.from({ length: calls }), atOnce, ask);
  process.send?.(performance.now() - begun);
}
