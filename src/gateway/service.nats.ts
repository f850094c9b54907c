import { z } from "zod";
import { taking, userId } from "../contracts/untrusted.js";
import { type NatsService, type ServiceDeps, startNatsService } from "../platform/nats/service.js";
import type { State } from "../state/index.js";

const END = z.strictObject({ user_id: userId });

/** Offers `streams end` as the NATS service `avion-streams`. */
export function startStreamService({
  logOut,
  ...deps
}: ServiceDeps & { readonly logOut: State["streams"]["logOut"] }): Promise<NatsService> {
  return startNatsService({
    ...deps,
    name: "avion-streams",
    description: "Event streams",
    group: "avion.ops.streams",
    endpoints: () => ({
      end: {
        about: "Ends all streams of a user, and refuses tokens issued before: {user_id}",
        answer: taking(END, ({ user_id }) => logOut(user_id)),
      },
    }),
  });
}
