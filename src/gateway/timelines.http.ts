import type { Router } from "express";
import { listPath, PAGED_TIMELINES, TIMELINE_QUERY, timelinePath } from "../contracts/timeline-pages.js";
import type { GetTimelineResponse } from "../gen/avion/timeline.js";
import { type ApiDeps, createApi, understood } from "../platform/http/api.js";
import type { ReadShownDrops } from "../upstreams/shown-drops.js";
import type { ReadPage } from "../upstreams/timelines.grpc.js";
import { createExpand } from "./expand.js";
import { observeGateway } from "./observe.js";

interface TimelineRouteDeps extends Omit<ApiDeps, "refused"> {
  readonly readPage: ReadPage;
  /** Undefined if no posts service is configured: items have no drops. */
  readonly readDrops: ReadShownDrops | undefined;
  /** Paths of links begin with it. */
  readonly pathPrefix: string;
}

/** A page may rebuild a timeline. */
const PAGE_COST = 10;

/** Serves pages of timelines over HTTP, as the role api reads them for the caller. */
export function createTimelineRouter({ readPage, readDrops, pathPrefix, ...deps }: TimelineRouteDeps): Router {
  const api = createApi({ ...deps, refused: observeGateway.pageRefused });
  observeGateway.pagesServed();
  const expand = createExpand({
    readDrops: readDrops ?? (async () => new Map()),
    mayCall: async (user) => (await deps.takeRead(user, PAGE_COST)) === 0,
  });
  for (const name of PAGED_TIMELINES) {
    const answer: Parameters<typeof api.get>[1] = async ({ user }, request, response) => {
      const { limit, expand: wanted, with_newer, ...cursors } = understood(TIMELINE_QUERY, request.query, "query");
      const { max_id = "", min_id = "", since_id = "" } = cursors;
      const list_id = request.params.id ?? "";
      const asked = { user_id: user, list_id, limit, max_id, min_id, since_id, with_newer: with_newer === "true" };
      const page = await readPage(name, asked);
      const path = list_id === "" ? timelinePath(name) : listPath(encodeURIComponent(list_id));
      const query = `limit=${limit}${wanted === undefined ? "" : `&expand=${wanted}`}`;
      const links = linksOf(page, { path: pathPrefix + path, query, isLast: min_id === "" && !page.has_more });
      // An empty page leads nowhere.
      if (links.length > 0) response.set("Link", links.join(", "));
      observeGateway.pageServed(name);
      return wanted === undefined ? page : expand(page, user);
    };
    api.get(name === "list" ? listPath(":id") : timelinePath(name), answer, PAGE_COST);
  }
  return api.complete();
}

/** `next` is the older page, unless there is none; `prev` is the newer one, which may come to be (RFC 8288). */
function linksOf(
  { next_max_id, prev_min_id }: GetTimelineResponse,
  { path, query, isLast }: { readonly path: string; readonly query: string; readonly isLast: boolean },
): string[] {
  const link = (rel: string, name: string, cursor: string): string[] =>
    cursor === "" ? [] : [`<${path}?${query}&${name}=${encodeURIComponent(cursor)}>; rel="${rel}"`];
  return [...(isLast ? [] : link("next", "max_id", next_max_id)), ...link("prev", "min_id", prev_min_id)];
}
