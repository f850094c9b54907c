import type { RequestHandler, Router } from "express";
import { z } from "zod";
import { understood, userId } from "../../contracts/untrusted.js";
import { requireUser, type World } from "./world.grpc.js";

const ownerRequest = z.object({ user_id: userId });
const listRequest = z.strictObject({ user_id: userId, title: z.string().max(1_000) });
const memberRequest = z.strictObject({ user_id: userId, list_id: z.string().max(1_024), member_id: userId });

/** A user makes lists, and changes their members. The page reads their timelines by the client. */
export function addLists(router: Router, world: World): void {
  const { lists: service } = world;
  router.get("/lists", async (request, response) => {
    const { user_id } = understood(ownerRequest, request.query);
    const { lists } = await service.listLists({ user_id });
    const withMembers = lists.map(async ({ list_id, title }) => {
      const { member_ids: members } = await service.listMembers({ user_id, list_id });
      return { list_id, title, members };
    });
    response.json({ lists: await Promise.all(withMembers) });
  });
  router.post("/lists", async (request, response) => {
    const asked = understood(listRequest, request.body ?? {});
    await requireUser(world, "user_id", asked.user_id);
    const { list } = await service.createList(asked);
    response.status(201).json({ list_id: list?.list_id });
  });
  const change =
    (act: typeof service.addListMembers | typeof service.removeListMembers): RequestHandler =>
    async (request, response) => {
      const { member_id, ...asked } = understood(memberRequest, request.body ?? {});
      await requireUser(world, "member_id", member_id);
      const { changed } = await act({ ...asked, member_ids: [member_id] });
      response.json({ changed: changed > 0 });
    };
  router.post("/members", change(service.addListMembers));
  router.delete("/members", change(service.removeListMembers));
}
