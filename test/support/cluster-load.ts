import { expect } from "@jest/globals";
import type { Cluster, Redis } from "ioredis";
import { eventually } from "./eventually.js";
import { drops, expectLoaded } from "./load.js";
import { type Service, startService } from "./service.js";
import { openStreams, type Streams } from "./streams.js";
import type { TimelineEvent } from "./timeline-events.js";
import { startUpstreams } from "./upstreams.js";
import { World } from "./world.js";

/** Brokers of a test's own, and how events get to the service on them. */
export interface ClusterSceneOptions {
  readonly redisUrl: string;
  readonly natsUrl: string;
  /** Unset: where the service looks. */
  readonly lookUrl?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly readers: readonly string[];
  /** Reads what timelines hold. */
  readonly redis: Redis | Cluster;
  readonly tell: (event: TimelineEvent, streams: Streams) => Promise<unknown>;
  /** Leaves a function to be called in the end, last first. */
  readonly defer: (close: () => unknown) => void;
}

/** A service on a cluster, an author with readers, and load. */
export interface ClusterScene {
  readonly service: Service;
  /** Starts a further service at other servers of the NATS. */
  start(natsUrl: string, roles?: string): Promise<Service>;
  readonly streams: Streams;
  readonly history: readonly TimelineEvent[];
  /** Publishes so many further drops, one by one. */
  load(count: number): Promise<void>;
  /** Puts so many further drops into the log, as a relay of the posts service does. */
  admit(count: number): Promise<void>;
  /** Waits until every timeline holds what it must, and nothing was given up. */
  landed(): Promise<void>;
}

/** Starts upstreams and a service on brokers that are there. */
export async function openClusterScene(options: ClusterSceneOptions): Promise<ClusterScene> {
  const { redisUrl, natsUrl, lookUrl = natsUrl, env = {}, readers, redis, tell, defer } = options;
  const world = new World();
  drops(world, readers, 0, 0);
  const { usersAddress, postsAddress, stop } = await startUpstreams(world);
  defer(stop);
  const streams = await openStreams(lookUrl);
  defer(() => streams.close());
  const start = async (url: string, roles?: string): Promise<Service> => {
    const service = await startService({
      ...{ redisUrl, natsUrl: url, usersAddress, postsAddress, env },
      ...(roles === undefined ? {} : { roles }),
    });
    defer(() => service.stop());
    return service;
  };
  const service = await start(natsUrl);
  const history: TimelineEvent[] = [];
  const fresh = async (count: number, publish: (event: TimelineEvent) => Promise<unknown>): Promise<void> => {
    for (let number = 0; number < count; number++) {
      const [event] = drops(world, readers, history.length, 1) as [TimelineEvent];
      history.push(event);
      await publish(event);
    }
  };
  const holdsAll = () =>
    expectLoaded(redis as Redis, readers, history).then(
      () => true,
      (error: unknown) => String(error).slice(0, 300),
    );
  return {
    service,
    start,
    streams,
    history,
    load: (count) => fresh(count, (event) => tell(event, streams)),
    admit: (count) => fresh(count, (event) => intoLog(event, streams)),
    async landed() {
      await streams.settledWith(history.length, 90_000);
      // A consumer without a leader is on no list, and looks as if it had nothing left to do; and what a master had
      // confirmed and not handed on is applied again from the log, a little later.
      await eventually(holdsAll, "every timeline holds what it must", 60_000);
      expect(await streams.count("DLQ")).toBe(0);
    },
  };
}

/** Admits an event as a relay does, past Redis Pub/Sub. */
export function intoLog({ payload }: TimelineEvent, { connection }: Streams): Promise<unknown> {
  const body = JSON.stringify(payload);
  return connection.jetstream().publish("drops.created", body, { msgID: body });
}
