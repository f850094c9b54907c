import type { IncomingMessage } from "node:http";
import { BODY_MS } from "../../platform/http/serve.js";
import { badRequest, Problem } from "./problem.http.js";

const MAX_BYTES = 16 * 1_024;
/** A client reads its answer only after its body is taken; a longer body is cut off. */
const MAX_DISCARDED_BYTES = 1_024 * 1_024;

const MEDIA_TYPE = /^application\/json *(?:; *charset="?utf-8"? *)?$/i;
const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * Reads a JSON body of at most 16 KiB. A larger one is refused at once; `express.json` reads it to its end first.
 * @throws Problem 400, 408, 413, 415
 */
export async function readJson(request: IncomingMessage): Promise<unknown> {
  const { "content-type": type = "", "content-encoding": encoding = "identity" } = request.headers;
  if (!MEDIA_TYPE.test(type) || encoding !== "identity")
    throw new Problem(415, "the body must be application/json in UTF-8, without a content encoding");
  const bytes = await readBytes(request);
  try {
    return JSON.parse(decoder.decode(bytes));
  } catch {
    throw badRequest([{ field: "body", detail: "is not JSON in UTF-8" }]);
  }
}

function readBytes(request: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    let size = 0;
    request.on("data", (part: Buffer) => {
      size += part.length;
      if (size <= MAX_BYTES) parts.push(part);
      else reject(new Problem(413, "the body is larger than 16 KiB"));
      if (size > MAX_DISCARDED_BYTES) request.destroy();
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
