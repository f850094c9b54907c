import { domainToASCII, domainToUnicode } from "node:url";
import type * as wire from "../../gen/avion/posts.js";
import { AppError, invalid } from "../../kernel/errors.js";
import { storedIdFault } from "../../kernel/fields.js";
import { findLocalUser } from "../drops/local-users.js";
import { urisOf } from "../drops/uris.js";
import type { RemoteDeps } from "./deps.js";

/** The pattern takes user@host, @user@host or acct:user@host. */
const ADDRESS = /^(?:acct:)?@?([^\s@\p{Cc}]+)@([^\s@\p{Cc}/:?#\\]+)(:\d{1,5})?$/iu;
const MAX_ADDRESS_BYTES = 320;

interface Address {
  /** The user is as the address has it: ids of local users are case-sensitive. */
  readonly user: string;
  /** The host is in ASCII and small letters, with the port if there is one. */
  readonly host: string;
}

/** @throws AppError `invalid` */
function parseWebfinger(address: string): Address {
  const [, user = "", host = "", port = ""] = ADDRESS.exec(address) ?? [];
  const ascii = domainToASCII(host).replace(/\.$/, "");
  const isTooLong = Buffer.byteLength(`${user.toLowerCase()}@${ascii}${port}`) > MAX_ADDRESS_BYTES;
  if (/^\.*$/.test(ascii) || isTooLong || !address.isWellFormed()) throw invalid("webfinger", "must be user@host");
  return { user, host: `${ascii}${port}` };
}

/** One way to write an address is stored: in small letters, with the host in ASCII. */
export function readWebfinger(address: string): string {
  const { user, host } = parseWebfinger(address);
  return `${user.toLowerCase()}@${host}`;
}

/** Earlier versions kept the form an address was written in, which the next put of the actor replaces. */
function readStoredWebfingers(address: string): string[] {
  const canonical = readWebfinger(address);
  const [, user = "", host = "", port = ""] = ADDRESS.exec(canonical) ?? [];
  const hosts = [host, domainToUnicode(host)].flatMap((name) => [name, `${name}.`]);
  const written = hosts.flatMap((name) => [`${user}@${name}${port}`, `acct:${user}@${name}${port}`]);
  return [...new Set([canonical, address.toLowerCase(), ...written])];
}

export const ACTIVITY_JSON = "application/activity+json";

export const webfinger = (deps: RemoteDeps) => ({
  /** An address on the host of this server is one of a local user. */
  async resolveWebfinger(request: wire.ResolveWebfingerRequest): Promise<wire.ResolveWebfingerResponse> {
    const forms = readStoredWebfingers(request.webfinger);
    const { user, host } = parseWebfinger(request.webfinger);
    const uris = urisOf(deps.config);
    if (host === uris?.host) {
      const user_id = await findUser(deps, user);
      return { actor: undefined, user_id, type: ACTIVITY_JSON, href: uris.ofUser(user_id) };
    }
    const actor = await deps.store.remote.byWebfinger(forms);
    if (actor === undefined) throw notFound();
    return { actor, user_id: "", type: actor.webfinger_type, href: actor.webfinger_href };
  },
});

const notFound = (): AppError => new AppError("notfound", "webfinger: there is no such actor");

/** An address is in any case, ids are not. */
async function findUser(deps: RemoteDeps, user: string): Promise<string> {
  for (const id of new Set([user, user.toLowerCase()]))
    if (storedIdFault(id) === undefined && (await findLocalUser(deps, "webfinger", id))) return id;
  throw notFound();
}
