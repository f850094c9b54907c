import { type Client, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { ListServiceService } from "../../gen/avion/lists.js";
import { type GetDropResponse, PostServiceService, Visibility } from "../../gen/avion/posts.js";
import { TimelineServiceService } from "../../gen/avion/timeline.js";
import { UserServiceService } from "../../gen/avion/users.js";
import { invalid } from "../../kernel/errors.js";
import { pause, SECOND } from "../../kernel/time.js";
import { connectUpstream } from "../../upstreams/call.grpc.js";

interface Method {
  readonly path: string;
  requestSerialize(request: object): Buffer;
  requestDeserialize(bytes: Buffer): object;
  responseDeserialize(bytes: Buffer): object;
}

type Request<Of extends Method> = ReturnType<Of["requestDeserialize"]>;
type Response<Of extends Method> = ReturnType<Of["responseDeserialize"]>;

/** Each method of a service returns a promise; what a request leaves out is empty. */
export type Calls<Service extends Record<keyof Service, Method>> = {
  readonly [Name in keyof Service]: (
    fields?: Partial<Request<Service[Name]>>,
    deadlineMs?: number,
  ) => Promise<Response<Service[Name]>>;
};

export function callsOf<Service extends Record<keyof Service, Method>>(
  client: Client,
  service: Service,
): Calls<Service> {
  const methods = Object.entries<Method>(service).map(([name, method]) => {
    const call = (fields: object = {}, deadlineMs = 10 * SECOND) =>
      new Promise((resolve, reject) => {
        const { path, requestSerialize, requestDeserialize, responseDeserialize } = method;
        const request = { ...requestDeserialize(Buffer.alloc(0)), ...fields };
        const options = { deadline: Date.now() + deadlineMs };
        const answered = (error: ServiceError | null, response?: object) => (error ? reject(error) : resolve(response));
        const codecs = [requestSerialize, responseDeserialize] as const;
        client.makeUnaryRequest(path, ...codecs, request, new Metadata(), options, answered);
      });
    return [name, call] as const;
  });
  return Object.fromEntries(methods) as Calls<Service>;
}

/** The services are at an address (host:port), and called as anybody. */
export type World = ReturnType<typeof connectWorld>;

export function connectWorld(address: string) {
  const client = connectUpstream(address, {});
  return {
    users: callsOf(client, UserServiceService),
    posts: callsOf(client, PostServiceService),
    timelines: callsOf(client, TimelineServiceService),
    lists: callsOf(client, ListServiceService),
    close: () => client.close(),
  };
}

/** The page shows a drop in this form, and a repost as its original. */
export interface SeenDrop {
  readonly drop_id: string;
  /** The author of the original. */
  readonly author: string;
  /** The time is in ms since the epoch. Of a repost it is its own. */
  readonly created_at: number | null;
  readonly visibility: string | null;
  readonly body: string;
  readonly deleted: boolean;
  /** The original of a repost and who reposted it; empty for other drops. */
  readonly repost_of: string;
  readonly reposted_by: string;
  /** The drop that this one answers, or "". */
  readonly reply_to: string;
  /** Counted from 1; each edit adds one. */
  readonly revision: number;
  readonly attachments: readonly { readonly url: string; readonly description: string }[];
  readonly likes: number;
  readonly shares: number;
  readonly replies: number;
  /** The viewer has done so; unset without a viewer. */
  readonly liked: boolean | undefined;
  readonly shared: boolean | undefined;
}

const nobody = { author: "", reposted_by: "", repost_of: "", reply_to: "" };
const nothing = { created_at: null, visibility: null, body: "", revision: 1, attachments: [] };
const noState = { likes: 0, shares: 0, replies: 0, liked: undefined, shared: undefined };

export function seen({ drop, tombstone, counts, viewer }: GetDropResponse): SeenDrop {
  if (!drop) return { ...nobody, ...nothing, ...noState, drop_id: tombstone?.id ?? "", deleted: true };
  const { drop_id, created_at, repost_of, original = drop } = drop;
  const { user_id: author, visibility, body, reply_to, revision, attachments } = original;
  const reposted_by = repost_of === "" ? "" : drop.user_id;
  const shown = { author, visibility: Visibility[visibility].toLowerCase(), body, reply_to, revision, attachments };
  const { likes = 0, shares = 0, replies = 0 } = counts ?? {};
  const state = { likes, shares, replies, liked: viewer?.liked, shared: viewer && viewer.repost_id !== "" };
  return { drop_id, created_at, deleted: false, repost_of, reposted_by, ...shown, ...state };
}

/** Drops are in the order asked for, without those that a viewer may not see. Without a viewer all are returned. */
export async function dropsOf({ posts }: World, drop_ids: readonly string[], viewer_id = ""): Promise<SeenDrop[]> {
  if (drop_ids.length === 0) return [];
  const { results } = await posts.getDrops({ drop_ids: [...drop_ids], viewer_id, with_state: true });
  return results.map(seen);
}

/** A drop, whom it answers, and what its viewer has done about it and its author; unset if the viewer cannot do so. */
interface ViewedDrop extends SeenDrop {
  /** Author of the drop that this one answers; unset if the viewer does not see that. */
  readonly answers?: string | undefined;
  readonly muting?: boolean;
  readonly blocking?: boolean;
}

export async function viewsOf(world: World, drops: readonly SeenDrop[], user_id: string): Promise<ViewedDrop[]> {
  const target_ids = [...new Set(drops.map(({ author }) => author))].filter((id) => id !== "" && id !== user_id);
  const parents = [...new Set(drops.flatMap(({ reply_to }) => reply_to || []))];
  const [{ relations }, answered] = await Promise.all([
    world.users.getRelations({ user_id, target_ids }),
    dropsOf(world, parents, user_id),
  ]);
  const authorOf = new Map(answered.map(({ drop_id, author }) => [drop_id, author || undefined]));
  const relationTo = new Map(
    relations.map(({ target_id, muting, blocking }) => [target_id, { muting, blocking }] as const),
  );
  return drops.map((drop) => {
    const { author, visibility, reply_to } = drop;
    const isShareable =
      visibility === "public" || visibility === "unlisted" || (visibility === "followers" && author === user_id);
    return {
      ...drop,
      answers: authorOf.get(reply_to),
      shared: isShareable ? drop.shared : undefined,
      ...relationTo.get(author),
    };
  });
}

const HIDDEN_READ = 100;

/** Lists the users that a user mutes and blocks, the newest first. */
export async function hiddenFrom({ users }: World, user_id: string): Promise<{ muted: string[]; blocked: string[] }> {
  const page = { user_id, page_size: HIDDEN_READ };
  const [{ mutes }, { blocks }] = await Promise.all([users.listMutes(page), users.listBlocks(page)]);
  return { muted: mutes.map(({ target_id }) => target_id), blocked: blocks.map(({ target_id }) => target_id) };
}

/** Lists the users who have asked to follow a user, the newest first. */
export async function requestsTo({ users }: World, user_id: string): Promise<string[]> {
  const { requests } = await users.listFollowRequests({ user_id, page_size: HIDDEN_READ });
  return requests.map((request) => request.user_id);
}

async function isKnown({ users }: World, user_id: string): Promise<boolean> {
  try {
    await users.getProfile({ user_id });
    return true;
  } catch (error) {
    if ((error as ServiceError).code === status.NOT_FOUND) return false;
    throw error;
  }
}

/** @throws AppError `invalid`, naming the field */
export async function requireUser(world: World, field: string, user: string): Promise<void> {
  if (!(await isKnown(world, user))) throw invalid(field, "is no user of this world");
}

const MAX_TRIES = 20;

/** Calls again while the services are unavailable: all of them share one machine, which has just started them. */
export async function whileBusy(work: () => Promise<unknown>): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await work();
      return;
    } catch (error) {
      if ((error as ServiceError).code !== status.UNAVAILABLE || tries === MAX_TRIES) throw error;
      await pause(SECOND / 2);
    }
  }
}
