import { expect } from "@jest/globals";
import { faultsInActivity } from "./json-ld.js";
import { type PostsHarness, refusal } from "./posts.js";

/** A document of ActivityStreams. */
export type Activity = Record<string, unknown> & { readonly id: string; readonly type: string };

/** Resolves to the document of a URI, and checks that it is valid. */
export async function activity(posts: PostsHarness, uri: string, viewer_id = ""): Promise<Activity> {
  const { json, content_type } = await posts.call.getActivity({ uri, viewer_id });
  expect(content_type).toBe("application/activity+json");
  expect(await faultsInActivity(json)).toEqual([]);
  return JSON.parse(json) as Activity;
}

/** Reads all pages of a collection, none of which may be empty; resolves to its items and its number of items. */
export async function itemsOf(posts: PostsHarness, uri: string, viewer_id = "") {
  const collection = await activity(posts, uri, viewer_id);
  expect(collection).toMatchObject({ id: uri, type: "OrderedCollection" });
  const pages: unknown[][] = [];
  for (let next = collection["first"]; next !== undefined; ) {
    const page = await activity(posts, next as string, viewer_id);
    expect(page).toMatchObject({ id: next, type: "OrderedCollectionPage", partOf: uri });
    pages.push(page["orderedItems"] as unknown[]);
    next = page["next"];
  }
  return { total: collection["totalItems"], items: pages.flat(), pages: pages.length };
}

/** Resolves to the type of a document, or to the error that refuses it. */
export const typeOrRefusal = async (posts: PostsHarness, uri: string, viewer_id = ""): Promise<string> => {
  const found = activity(posts, uri, viewer_id);
  return found.then(
    ({ type }) => type,
    () => refusal(found),
  );
};

export const NOTHING = "NOT_FOUND uri: names nothing here";
