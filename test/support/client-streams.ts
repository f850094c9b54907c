/** Streams of the client for TypeScript, all of which hear of the same drops. */
import {
  type ClientOptions,
  type PositionStorage,
  type StreamName,
  TimelineClient,
  type TimelineStream,
} from "../../clients/typescript/src/index.js";
import type { Api } from "./api.js";
import { eventually } from "./eventually.js";
import { limited, UNLIMITED } from "./limits.js";
import { tokenOf } from "./tokens.js";

/** Time between two heartbeats of a stream. */
export const BEAT_MS = 200;

/** Options of a stack on its own users, posts and notifications, whose clients come back soon. */
export const PEOPLE = {
  roles: "users,posts,fanout,api,gateway,notifications",
  data: true,
  env: {
    ...limited({ gateway: { retryMs: [10, 20], heartbeatMs: [BEAT_MS, BEAT_MS] } }),
    ...UNLIMITED,
    TIMELINE_USER_SERVICE_ADDR: "",
    TIMELINE_POST_SERVICE_ADDR: "",
  },
};

/** Addresses of the first service, for a gateway of its own. */
export const addressesOf = ({ grpcAddress }: { readonly grpcAddress: string }) => ({
  TIMELINE_API_ADDR: grpcAddress,
  TIMELINE_USER_SERVICE_ADDR: grpcAddress,
  TIMELINE_POST_SERVICE_ADDR: grpcAddress,
});

/** Lets a user hear of an author on every stream: by a follow, in a list, and by mentions. Returns the streams. */
export async function interest(api: Api, user: string, author: string): Promise<StreamName[]> {
  await api.follow({ follower_id: user, following_id: author });
  const list = await api.createList(user, author);
  return ["home", "local", "global", "notifications", `list:${list}`];
}

/** Posts drops that every stream of these users tells of, and returns their ids. */
export async function postFor(api: Api, author: string, users: readonly string[], count: number): Promise<string[]> {
  const drops: string[] = [];
  for (let number = 0; number < count; number++)
    drops.push((await api.post(author, { mentions: [...users], body: `Drop ${number}` })).drop_id);
  return drops;
}

export interface Heard {
  readonly name: StreamName;
  readonly stream: TimelineStream;
  /** Ids of new drops, or of the drops of notifications. */
  readonly drops: string[];
  readonly resets: string[];
  readonly downs: string[];
  opened: number;
}

export interface Listening {
  readonly url: string;
  readonly user: string;
  readonly name: StreamName;
  readonly token?: ClientOptions["token"];
  readonly storage?: PositionStorage;
  readonly lastEventId?: string;
  readonly idleMs?: number;
}

/** Opens a stream, and keeps what it says. */
export function hear({ url, user, name, token = () => tokenOf(user), ...options }: Listening): Heard {
  const stream = new TimelineClient({ url, token }).stream<StreamName>(name, options);
  const heard: Heard = { name, stream, drops: [], resets: [], downs: [], opened: 0 };
  stream.on(name === "notifications" ? "notification" : "new_drop", ({ data }) => heard.drops.push(data.drop_id ?? ""));
  stream.on("reset", ({ data }) => heard.resets.push(data.reason));
  stream.on("down", ({ error }) => heard.downs.push(error.message));
  stream.on("open", () => heard.opened++);
  return heard;
}

/** Waits until all streams are open, for this time. */
export const areOpen = (all: readonly Heard[], times = 1): Promise<void> =>
  eventually(() => all.every(({ opened }) => opened >= times) || said(all), "all streams are open");

/** Waits until all streams have heard of so many drops. */
export const hearAll = (all: readonly Heard[], wanted: readonly string[], patienceMs?: number): Promise<void> =>
  eventually(
    () => all.every(({ drops }) => drops.length >= wanted.length) || said(all),
    `all streams hear of ${wanted.length} drops`,
    patienceMs,
  );

const said = (all: readonly Heard[]): string =>
  all.map(({ name, drops, opened, downs }) => `${name}: ${drops.length}, ${opened} times open; ${downs.at(-1)}`).join();
