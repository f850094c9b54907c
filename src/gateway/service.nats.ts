import type { NatsConnection } from "nats";
import { z } from "zod";
import { parseJson } from "../contracts/events.js";
import { understood, userId } from "../contracts/untrusted.js";
import type { Logger } from "../kernel/logger.js";
import { type NatsService, startNatsService } from "../platform/nats/service.js";
import type { createLogOut } from "../state/index.js";

interface StreamServiceOptions {
  readonly nats: NatsConnection;
  readonly logOut: ReturnType<typeof createLogOut>;
  readonly version: string;
  readonly log: Logger;
}

const END = z.strictObject({ user_id: userId });

/** Offers `streams end` as the NATS service `avion-streams`. */
export function startStreamService({ logOut, ...options }: StreamServiceOptions): Promise<NatsService> {
  return startNatsService({
    ...options,
    name: "avion-streams",
    description: "Event streams",
    group: "avion.ops.streams",
    endpoints: {
      end: {
        about: "Ends all streams of a user, and refuses tokens issued before: {user_id}",
        answer: (request) => logOut(understood(END, parseJson(request)).user_id),
      },
    },
  });
}
