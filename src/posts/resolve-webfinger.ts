import type { ResolveWebfingerRequest, ResolveWebfingerResponse } from "../gen/avion/posts.js";
import { AppError, invalid } from "../kernel/errors.js";
import type { PostsDeps } from "./deps.js";
import { presentRemote } from "./present.js";

const ADDRESS = /^[^\s@\p{Cc}]+@[^\s@\p{Cc}/]+$/u;
const MAX_BYTES = 320;

/** Reads an address, user@host, into lower case. @throws AppError `invalid` */
export function readWebfinger(address: string): string {
  if (!ADDRESS.test(address) || Buffer.byteLength(address) > MAX_BYTES || !address.isWellFormed())
    throw invalid("webfinger", "is not user@host");
  return address.toLowerCase();
}

/** The actor of an address, expired ones too. */
export const resolveWebfinger =
  ({ store }: PostsDeps) =>
  async (request: ResolveWebfingerRequest): Promise<ResolveWebfingerResponse> => {
    const actor = await store.remote.byWebfinger(readWebfinger(request.webfinger));
    if (actor === undefined) throw new AppError("notfound", "webfinger: there is no such actor");
    return { actor: presentRemote(actor) };
  };
