import { Redis } from "ioredis";
import { PostServiceService } from "../../gen/avion/posts.js";
import { UserServiceService } from "../../gen/avion/users.js";
import { serveGrpc } from "../../platform/grpc/serve.js";
import { type Actions, createActions } from "../../world/actions.js";
import { createFaults, type Faults } from "../../world/faults.js";
import { createPostService } from "../../world/post-service.grpc.js";
import { type SeedSummary, seedWorld } from "../../world/seed.js";
import { createUserService } from "../../world/user-service.grpc.js";
import { World } from "../../world/world.js";
import type { Closers } from "../closers.js";

/** A seeded world, served over gRPC and publishing its events. */
export interface ServedWorld {
  readonly world: World;
  readonly actions: Actions;
  readonly faults: Faults;
  readonly seeded: SeedSummary;
  readonly address: string;
  /** Publishes as any producer could. */
  readonly publish: (channel: string, payload: string) => Promise<void>;
}

/** Starts a world whose events go to the given Redis. */
export async function serveWorld(
  redisUrl: string,
  how: { closers: Closers; bigAuthorFollowers: number },
): Promise<ServedWorld> {
  const world = new World();
  const seeded = seedWorld(world, { bigAuthorFollowers: how.bigAuthorFollowers });
  const redis = new Redis(redisUrl);
  how.closers.add("world's Redis", () => redis.disconnect());
  const publish = async (channel: string, payload: string): Promise<void> => {
    await redis.publish(channel, payload);
  };
  const faults = createFaults();
  const server = await serveGrpc(
    "127.0.0.1:0",
    [
      {
        name: "avion.UserService",
        definition: UserServiceService,
        implementation: createUserService({ world, faults }),
      },
      {
        name: "avion.PostService",
        definition: PostServiceService,
        implementation: createPostService({ world, faults }),
      },
    ],
    {},
  );
  server.setServing(true);
  how.closers.add("world", () => server.close(0));
  const actions = createActions({ world, publish });
  return { world, actions, faults, seeded, address: `127.0.0.1:${server.port}`, publish };
}
