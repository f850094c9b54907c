import type { Router } from "express";
import { z } from "zod";
import { type Standing, standingNumber } from "../../contracts/standings.js";
import { understood, userId } from "../../contracts/untrusted.js";
import { requireUser, type World } from "./world.grpc.js";

const SUSPENDED: Standing = "suspended";
const STANDINGS_READ = 100;

const standingRequest = z.strictObject({ user_id: userId, standing: z.enum(["active", SUSPENDED]) });

/** An operator suspends users of this world, and lifts that again. */
export function addStandings(router: Router, world: World): void {
  router.get("/standings", async (_request, response) => {
    const { entries } = await world.users.listStandings({ page_size: STANDINGS_READ });
    const suspended = entries.filter(
      ({ user_id, standing }) => user_id !== "" && standing === standingNumber(SUSPENDED),
    );
    response.json({ suspended: suspended.map(({ user_id, reason }) => ({ user_id, reason })) });
  });
  router.put("/standings", async (request, response) => {
    const { user_id, standing } = understood(standingRequest, request.body ?? {});
    await requireUser(world, "user_id", user_id);
    const wanted = { user_id, standing: standingNumber(standing), by: "the page", reason: "a try" };
    const { changed } = await world.users.setStanding(wanted);
    response.json({ changed });
  });
}
