import { isUuid } from "../kernel/ids.js";
import { parseUrl } from "../kernel/urls.js";
import type { PostsConfig } from "./config.js";

export interface OwnUris {
  readonly host: string;
  readonly isOwn: (uri: string) => boolean;
  readonly ofUser: (userId: string) => string;
  /** Returns the id of a drop of this server, undefined for the URI of anything else. */
  readonly dropOf: (uri: string) => string | undefined;
}

/** Returns the URIs of local users and drops, undefined where they have none. */
export function urisOf({ publicUrl }: Partial<Pick<PostsConfig, "publicUrl">>): OwnUris | undefined {
  if (publicUrl === undefined) return undefined;
  const drops = `${publicUrl}/drops/`;
  return {
    host: new URL(publicUrl).host,
    isOwn: (uri) => hrefOf(uri).startsWith(`${publicUrl}/`),
    ofUser: (userId) => `${publicUrl}/users/${encodeURIComponent(userId)}`,
    dropOf: (uri) => {
      const href = hrefOf(uri);
      const id = href.startsWith(drops) ? href.slice(drops.length).toLowerCase() : "";
      return isUuid(id) ? id : undefined;
    },
  };
}

/** Schemes and hosts are in any case. */
const hrefOf = (uri: string): string => parseUrl(uri)?.href ?? uri;
