import { storedIdFault } from "../../kernel/fields.js";
import { isUuid } from "../../kernel/ids.js";
import { normalUri, parseUrl } from "../../kernel/urls.js";
import type { PostsConfig } from "../config.js";
import { isUri } from "./request.js";

/** A parsed URI of this server. The user or drop need not exist. */
export interface OwnUri {
  readonly kind: "users" | "drops";
  readonly id: string;
  /** The name of a collection of the user or drop; empty for the user or drop itself. */
  readonly collection: string;
  /** Empty for the first page, undefined for the collection itself. */
  readonly pageToken: string | undefined;
}

export interface OwnUris {
  readonly host: string;
  readonly isOwn: (uri: string) => boolean;
  readonly ofUser: (userId: string) => string;
  readonly ofDrop: (dropId: string) => string;
  /** Returns undefined for a URI of another server, and for one of another form. */
  readonly parse: (uri: string) => OwnUri | undefined;
  /** Returns the id of a drop of this server, undefined for the URI of anything else. */
  readonly dropOf: (uri: string) => string | undefined;
}

export type OwnUrl = Partial<Pick<PostsConfig, "publicUrl">>;

/** Returns the id of a user of this server for its URI. Everything else stays as it is. */
export function localUserOr(id: string, config: OwnUrl = {}): string {
  const named = urisOf(config)?.parse(id);
  return named?.kind === "users" && named.collection === "" ? named.id : id;
}

/** Returns the id of a drop of this server for its URI. Everything else stays as it is. */
export const localDropOr = (id: string, config: OwnUrl = {}): string => urisOf(config)?.dropOf(id) ?? id;

/** Returns the URIs of local users and drops, undefined if they have none. */
export function urisOf({ publicUrl }: OwnUrl): OwnUris | undefined {
  if (publicUrl === undefined) return undefined;
  const base = normalUri(publicUrl).replace(/\/+$/, "");
  const drops = `${publicUrl}/drops/`;
  return {
    host: new URL(publicUrl).host,
    isOwn: (uri) => normalUri(uri).startsWith(`${base}/`),
    ofUser: (userId) => `${publicUrl}/users/${encodeURIComponent(userId)}`,
    ofDrop: (dropId) => drops + dropId,
    parse: (uri) => {
      const href = normalUri(uri);
      return href.startsWith(`${base}/`) ? parsePath(href.slice(base.length + 1)) : undefined;
    },
    dropOf: (uri) => {
      const href = normalUri(uri);
      const id = href.startsWith(`${base}/drops/`) ? href.slice(base.length + 7).toLowerCase() : "";
      return isUuid(id) ? id : undefined;
    },
  };
}

const PATH = /^(users|drops)\/([^/?#]+)(?:\/([a-z]+)(?:\?page_token=([\w-]*))?)?$/;

function parsePath(path: string): OwnUri | undefined {
  const [, kind, name = "", collection = "", pageToken] = PATH.exec(path) ?? [];
  const id = kind === "users" ? userIn(name) : name.toLowerCase();
  if (kind === "users" && id !== undefined) return { kind, id, collection, pageToken };
  if (kind === "drops" && id !== undefined && isUuid(id)) return { kind, id, collection, pageToken };
  return undefined;
}

/** The id of a remote actor is a URI: a local user has no such id. */
function userIn(name: string): string | undefined {
  try {
    const id = decodeURIComponent(name);
    return storedIdFault(id) === undefined && !isUri(id) ? id : undefined;
  } catch {
    return undefined;
  }
}

/** Tells whether two URIs are of one server: nobody speaks for another one. */
export const isOnHostOf = (uri: string, other: string): boolean => {
  const host = parseUrl(uri)?.host;
  return host !== undefined && host === parseUrl(other)?.host;
};

export const isSameUri = (a: string, b: string): boolean => normalUri(a) === normalUri(b);
