import type { IncomingMessage } from "node:http";
import { badRequest, Problem } from "../../kernel/problem.js";
import { BODY_MS } from "./serve.js";

const MEDIA_TYPE = /^application\/json *(?:; *charset="?utf-8"? *)?$/i;
const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * Refuses a larger body at once, which `express.json` reads to its end first. The rest is discarded until the connection
 * ends: many a client reads its answer only after it has sent its body.
 *
 * @throws Problem 400, 408, 413, 415
 */
export async function readJson(request: IncomingMessage, maxBytes: number): Promise<unknown> {
  const { "content-type": type = "", "content-encoding": encoding = "identity" } = request.headers;
  if (!MEDIA_TYPE.test(type) || encoding !== "identity")
    throw new Problem(415, "the body must be application/json in UTF-8, without a content encoding");
  const bytes = await readBytes(request, maxBytes);
  try {
    return JSON.parse(decoder.decode(bytes));
  } catch {
    throw badRequest([{ field: "body", detail: "is not JSON in UTF-8" }]);
  }
}

function readBytes(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    let size = 0;
    request.on("data", (part: Buffer) => {
      size += part.length;
      if (size <= maxBytes) parts.push(part);
      else reject(new Problem(413, `the body is larger than ${maxBytes / 1_024} KiB`));
    });
    const late = setTimeout(() => reject(new Problem(408, "the body came too slowly")), BODY_MS).unref();
    request.once("end", () => {
      clearTimeout(late);
      resolve(Buffer.concat(parts));
    });
    request.once("close", () => {
      clearTimeout(late);
      if (!request.complete) reject(new Problem(400, "the body ended early"));
    });
  });
}
