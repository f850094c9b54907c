import { fileURLToPath } from "node:url";
import { type Request, Router } from "express";
import { z } from "zod";
import { EXPLAIN_REQUEST, type ExplainRequest } from "../../contracts/explain.js";
import { STANDINGS } from "../../contracts/standings.js";
import { userId } from "../../contracts/untrusted.js";
import { AppError } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { type ApiDeps, allowOnly, callerOf, createApi, inRequest, understood } from "../../platform/http/api.js";
import { readJson } from "../../platform/http/body.js";
import { staticPage } from "../../platform/http/page.js";

type Read<Argument = void> = (argument: Argument) => Promise<unknown>;

/** Each function answers what its command prints with `--json`. */
export interface OpsDeps {
  /** @throws AppError `unauthenticated`; `forbidden` if the token is not an operator's */
  readonly authorize: ApiDeps["authorize"];
  readonly queues: Read;
  /** The queues of the last hour, the oldest first. */
  readonly history: Read;
  /** Operations of the NATS service `avion-dlq`. */
  readonly deadLetters: Readonly<Record<"groups" | "show" | "redrive" | "rm", Read<unknown>>>;
  /** Records by the name in their path; the page has a table of each. */
  readonly records: Readonly<Record<string, OpsRecords>>;
  readonly fanOuts: Read<string>;
  readonly explain: Read<ExplainRequest>;
  readonly audit: Read<string>;
  readonly setStanding: Read<SetStanding>;
  readonly log: Logger;
}

export interface OpsRecords {
  readonly list: Read;
  readonly drawn: Read;
  readonly show?: Read<string>;
}

const PAGE = fileURLToPath(new URL("./page/", import.meta.url));

/** A request may name ten thousand dead letters. */
const MAX_BODY_BYTES = 256 * 1_024;
const MAX_REASON_CHARACTERS = 500;

const reason = z
  .string()
  .trim()
  .min(1, { message: "must not be empty" })
  .max(MAX_REASON_CHARACTERS, { message: `must have at most ${MAX_REASON_CHARACTERS} characters` });
/** `why` is the operator's reason; `reason` is that of the dead letters. */
const REDRIVE = z.looseObject({ why: reason.optional() });
const REMOVE = z.looseObject({ why: reason });

const SET_STANDING = z.object({
  /** A user id, or a host, which has a dot. */
  subject: userId,
  is_user: z.boolean().default(false),
  standing: z.enum(STANDINGS),
  /** ms since the epoch; 0: for good. */
  until: z.number().int().nonnegative().default(0),
  why: reason,
});
/** A standing that an operator sets. */
export type SetStanding = z.output<typeof SET_STANDING> & { readonly by: string };

type Action = "redrive" | "rm";

/** Serves the page at /ops, and its answers, for operators alone, under /ops/api. */
export function createOpsRouter(deps: OpsDeps): Router {
  const api = createApi({
    authorize: deps.authorize,
    // Requests of other pages are not answered. An operator works while Redis, which counts reads, is away.
    allowedOrigins: new Set(),
    refuseCaller: async () => undefined,
    takeRead: async () => 0,
    refused: () => undefined,
    log: deps.log,
  });
  api.router.use("/ops/api", api.known);
  // A read of one dead letter would take the paths of the actions.
  addActions(api, deps);
  addReads(api, deps);
  api.router.use("/ops/api", () => {
    throw new AppError("notfound", "no such resource");
  });
  return Router().use(api.complete()).use("/ops", staticPage(PAGE));
}

type Api = ReturnType<typeof createApi>;

function addReads({ get }: Api, { deadLetters, records, ...deps }: OpsDeps): void {
  const read = (path: string, answer: (request: Request<{ id: string }>) => Promise<unknown>): void =>
    get(`/ops/api/${path}`, (_caller, request) => answer(request));
  const readOne = (name: string, show: Read<string>): void =>
    read(`${name}/:id`, ({ params: { id } }) => show(understood(userId, id, "id")));
  read("overview", () => deps.queues());
  read("history", () => deps.history());
  read("dead-letters", ({ query }) => deadLetters.groups(query));
  read("dead-letters/:id", ({ params: { id } }) => deadLetters.show({ seqs: [Number(id)] }));
  for (const [name, { list, show }] of Object.entries(records)) {
    read(name, () => list());
    if (show) readOne(name, show);
  }
  read("tables", () => Promise.all(Object.values(records).map(({ drawn }) => drawn())));
  readOne("fan-outs", deps.fanOuts);
  readOne("audits", deps.audit);
  read("explain", ({ query }) => deps.explain(understood(EXPLAIN_REQUEST, query, "query")));
}

function addActions({ router, known }: Api, { deadLetters, setStanding, log }: OpsDeps): void {
  router.route("/ops/api/standings").post(known, async (request, response) => {
    const wanted = understood(SET_STANDING, await readJson(request, MAX_BODY_BYTES), "body");
    const { user: by } = callerOf(response);
    response.json(await inRequest(request, "/ops/api/standings", () => setStanding({ ...wanted, by })));
  });
  const act = (action: Action, path: string, schema: z.ZodType<{ why?: string | undefined }>): void => {
    const route = `/ops/api/dead-letters/${path}`;
    router
      .route(route)
      .post(known, async (request, response) => {
        const { why, ...selection } = understood(schema, await readJson(request, MAX_BODY_BYTES), "body");
        // It is logged before it is done: a process that ends meanwhile leaves no act without a name.
        log.info({ action, operator: callerOf(response).user, why, selection }, "an operator acts on dead letters");
        response.json(await inRequest(request, route, () => deadLetters[action](selection)));
      })
      .all(allowOnly("POST"));
  };
  act("redrive", "redrive", REDRIVE);
  act("rm", "remove", REMOVE);
}
