import type { Router } from "express";
import { TIMELINE_QUERY, TIMELINES, timelinePath } from "../contracts/timeline-pages.js";
import type { GetTimelineResponse } from "../gen/avion/timeline.js";
import { type ApiDeps, createApi, understood } from "../platform/http/api.js";
import type { ReadPage } from "../upstreams/timelines.grpc.js";
import { observeGateway } from "./observe.js";

interface TimelineRouteDeps extends Omit<ApiDeps, "refused"> {
  readonly readPage: ReadPage;
  /** Paths of links begin with it. */
  readonly pathPrefix: string;
}

/** A page may rebuild a timeline. */
const PAGE_COST = 10;

/** Serves pages of timelines over HTTP, as the role api reads them for the caller. */
export function createTimelineRouter({ readPage, pathPrefix, ...deps }: TimelineRouteDeps): Router {
  const api = createApi({ ...deps, refused: observeGateway.pageRefused });
  observeGateway.pagesServed();
  for (const name of TIMELINES) {
    const path = timelinePath(name);
    const answer: Parameters<typeof api.get>[1] = async ({ user }, { query }, response) => {
      const { limit, ...cursors } = understood(TIMELINE_QUERY, query, "query");
      const { max_id = "", min_id = "", since_id = "" } = cursors;
      const page = await readPage(name, { user_id: user, limit, max_id, min_id, since_id });
      const links = linksOf(page, { path: pathPrefix + path, limit, isLast: min_id === "" && !page.has_more });
      // An empty page leads nowhere.
      if (links.length > 0) response.set("Link", links.join(", "));
      observeGateway.pageServed(name);
      return page;
    };
    api.get(path, answer, PAGE_COST);
  }
  return api.complete();
}

/** `next` is the older page, unless there is none; `prev` is the newer one, which may come to be (RFC 8288). */
function linksOf(
  { next_max_id, prev_min_id }: GetTimelineResponse,
  { path, limit, isLast }: { readonly path: string; readonly limit: number; readonly isLast: boolean },
): string[] {
  const link = (rel: string, name: string, cursor: string): string[] =>
    cursor === "" ? [] : [`<${path}?limit=${limit}&${name}=${encodeURIComponent(cursor)}>; rel="${rel}"`];
  return [...(isLast ? [] : link("next", "max_id", next_max_id)), ...link("prev", "min_id", prev_min_id)];
}
