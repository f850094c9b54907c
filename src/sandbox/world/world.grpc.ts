import { type Client, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { type GetDropResponse, PostServiceService, Visibility } from "../../gen/avion/posts.js";
import { TimelineServiceService } from "../../gen/avion/timeline.js";
import { UserServiceService } from "../../gen/avion/users.js";
import { SECOND } from "../../kernel/time.js";
import { connectUpstream } from "../../platform/grpc/call.js";

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
    close: () => client.close(),
  };
}

/** The page shows a drop in this form. An unknown one has only its id. */
export interface SeenDrop {
  readonly drop_id: string;
  readonly author: string;
  /** The time is in ms since the epoch. */
  readonly created_at: number | null;
  readonly visibility: string | null;
  readonly body: string;
  readonly deleted: boolean;
}

const unseen = { author: "", created_at: null, visibility: null, body: "", deleted: false };

export function seen({ drop, tombstone }: GetDropResponse): SeenDrop {
  if (!drop) return { ...unseen, drop_id: tombstone?.id ?? "", deleted: true };
  const { drop_id, user_id: author, created_at, visibility, body } = drop;
  return { drop_id, author, created_at, visibility: Visibility[visibility].toLowerCase(), body, deleted: false };
}

/** Drops are in the order asked for. */
export async function dropsOf({ posts }: World, dropIds: readonly string[]): Promise<SeenDrop[]> {
  if (dropIds.length === 0) return [];
  const { results } = await posts.getDrops({ drop_ids: [...dropIds] });
  const found = new Map(results.map(seen).map((drop) => [drop.drop_id, drop]));
  return dropIds.map((drop_id) => found.get(drop_id) ?? { ...unseen, drop_id });
}

export async function isKnown({ users }: World, user_id: string): Promise<boolean> {
  try {
    await users.getProfile({ user_id });
    return true;
  } catch (error) {
    if ((error as ServiceError).code === status.NOT_FOUND) return false;
    throw error;
  }
}
