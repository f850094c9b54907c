import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "@jest/globals";
import { createAuthenticate, createAuthorize } from "../../src/gateway/auth.js";
import { createNotificationRouter } from "../../src/gateway/index.js";
import {
  type ListNotificationsRequest,
  type MarkReadRequest,
  type Notification,
  NotificationKind,
  NotificationServiceService,
} from "../../src/gen/avion/notifications.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { type GrpcServer, serveGrpc } from "../../src/platform/grpc/serve.js";
import { unaryService } from "../../src/platform/grpc/unary.js";
import { type HttpServer, serveHttp } from "../../src/platform/http/serve.js";
import { connectNotifications } from "../../src/upstreams/notifications.grpc.js";
import { type Answer, type Call, call } from "../support/analysis-http.js";
import { JWT_SECRET } from "../support/service.js";

/** The role on the other side of gRPC, which answers from a list. */
const told: Notification[] = [];
let asked: (ListNotificationsRequest | MarkReadRequest)[];
let failure: Error | undefined;
let costs: number[];
let http: HttpServer;
let grpc: GrpcServer;
let client: ReturnType<typeof connectNotifications>;

const answering = async <Answered>(request: ListNotificationsRequest | MarkReadRequest, answer: () => Answered) => {
  asked.push(request);
  if (failure) throw failure;
  return answer();
};
const service = unaryService(
  NotificationServiceService,
  {
    listNotifications: (request) =>
      answering(request, () => {
        const older = told.filter(({ id }) => request.max_id === "" || id < request.max_id);
        const notifications = older.slice(0, request.limit);
        return {
          notifications,
          has_more: older.length > request.limit,
          next_max_id: notifications.at(-1)?.id ?? request.max_id,
        };
      }),
    getUnread: async () => ({ count: 2, newest_id: told[0]?.id ?? "" }),
    markRead: (request) => answering(request, () => ({ changed: request.up_to_id === "5" })),
  },
  silent,
);

beforeAll(async () => {
  grpc = await serveGrpc("127.0.0.1:0", [service], {});
  client = connectNotifications(`127.0.0.1:${grpc.port}`, {});
  http = await serveHttp({ address: "127.0.0.1:0", log: silent });
  http.use(
    createNotificationRouter({
      ...{ notifications: client, pathPrefix: "/social", allowedOrigins: new Set(), log: silent },
      authorize: createAuthorize(createAuthenticate({ jwtSecrets: [JWT_SECRET] }), new Set()),
      refuseCaller: async (user) => {
        if (user === "erin") throw new AppError("gone", "the user is erased");
      },
      takeRead: async (user, cost) => {
        costs.push(cost);
        return user === "greedy" ? 7 : 0;
      },
    }),
  );
});
beforeEach(() => {
  [asked, costs, failure] = [[], [], undefined];
});
afterEach(() => void told.splice(0));
afterAll(async () => {
  client.close();
  await http.close(0);
  await grpc.close(1_000);
});

const request = (path: string, options: Call = {}): Promise<Answer> =>
  call(`http://127.0.0.1:${http.port}/api/v1/notifications${path}`, { user: "ada", ...options });
const mark = (body: object | string, options: Call = {}) => request("/read", { method: "POST", body, ...options });
const fieldsOf = ({ body }: Answer): unknown[] => body.errors?.map(({ field }: { field: string }) => field);

test("pages show kinds by their names, leave out empty drops and kinds of a later version, and lead to older ones", async () => {
  const made = { actor_id: "bob é", drop_id: "d", created_at: 5 };
  told.push(
    { ...made, id: "9", kind: NotificationKind.LIKE },
    { ...made, id: "8", kind: 99 as NotificationKind },
    { ...made, id: "7", kind: NotificationKind.FOLLOW_REQUEST, drop_id: "" },
  );
  const first = await request("?limit=2&kinds=LIKE,FOLLOW_REQUEST&kinds=REPLY");
  expect([first.status, first.body]).toEqual([
    200,
    { notifications: [{ ...made, id: "9", kind: "LIKE" }], has_more: true, next_max_id: "8" },
  ]);
  const kinds = [NotificationKind.LIKE, NotificationKind.FOLLOW_REQUEST, NotificationKind.REPLY];
  expect(asked).toEqual([{ user_id: "ada", limit: 2, kinds, max_id: "" }]);
  expect(first.headers.get("cache-control")).toBe("no-store");
  const next = "?limit=2&kinds=LIKE,FOLLOW_REQUEST,REPLY&max_id=8";
  expect(first.headers.get("link")).toBe(`</social/api/v1/notifications${next}>; rel="next"`);
  const last = await request(next);
  const { drop_id: _, ...without } = { ...made, id: "7", kind: "FOLLOW_REQUEST" };
  expect(last.body).toEqual({ notifications: [without], has_more: false, next_max_id: "7" });
  expect(last.headers.has("link")).toBe(false);
  expect((await request("")).body.notifications).toHaveLength(2);
  expect(asked.at(-1)).toEqual({ user_id: "ada", limit: 20, kinds: [], max_id: "" });
});

test("a caller counts and marks their own notifications, at a cost that bounds a loop of calls", async () => {
  expect((await request("/unread")).body).toEqual({ count: 2, newest_id: "" });
  expect((await mark({ up_to_id: "5" })).body).toEqual({ changed: true });
  expect((await mark({ up_to_id: "4", user_id: "bob" })).body).toEqual({ changed: false });
  await request("");
  expect(asked.map(({ user_id }) => user_id)).toEqual(["ada", "ada", "ada"]);
  expect(costs).toEqual([5, 1, 1, 10]);
  for (const path of ["", "/unread"]) {
    const refused = await request(path, { user: "greedy" });
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "7"]);
  }
  expect((await mark({ up_to_id: "5" }, { user: "greedy" })).status).toBe(429);
  expect(asked).toHaveLength(3);
});

test.each([
  ["?limit=0", ["limit"]],
  ["?limit=101&kinds=LIKE,SHARE", ["limit", "kinds.1"]],
  ["?max_id=", ["max_id"]],
  [`?max_id=${"x".repeat(257)}`, ["max_id"]],
  ["?kinds=", ["kinds.0"]],
  [`?kinds=${Array.from({ length: 7 }, () => "LIKE").join()}`, ["kinds"]],
])("a wrong query is refused by its fields: %s", async (query, fields) => {
  const answer = await request(query);
  expect([answer.status, fieldsOf(answer)]).toEqual([400, fields]);
});

test("a wrong body is refused by its fields, its type and its size", async () => {
  for (const body of [{}, { up_to_id: 5 }, { up_to_id: "" }]) {
    const answer = await mark(body);
    expect([answer.status, fieldsOf(answer)]).toEqual([400, ["up_to_id"]]);
  }
  expect([(await mark("{")).status, (await mark({ up_to_id: "x".repeat(17_000) })).status]).toEqual([400, 413]);
  expect((await mark({ up_to_id: "5" }, { headers: { "content-type": "text/plain" } })).status).toBe(415);
  expect(asked).toEqual([]);
});

test("callers who are unknown or erased, and other methods, are refused", async () => {
  for (const [path, method] of [
    ["", "GET"],
    ["/unread", "GET"],
    ["/read", "POST"],
  ] as const) {
    const how = { method, ...(method === "POST" && { body: { up_to_id: "5" } }) };
    expect((await request(path, { ...how, user: undefined as never })).status).toBe(401);
    expect((await request(path, { ...how, user: "erin" })).status).toBe(410);
    const other = await request(path, { method: "PUT" });
    expect([other.status, other.headers.get("allow")]).toEqual([405, method === "POST" ? "POST" : "GET, HEAD"]);
  }
});

test("a refusal of the service is one of the request, and an outage passes", async () => {
  failure = new AppError("invalid", "up_to_id: is no id of a notification");
  const refused = await mark({ up_to_id: "x" });
  expect([refused.status, JSON.stringify(refused.body)]).toEqual([400, expect.stringContaining("up_to_id")]);
  failure = new AppError("unavailable", "the database is unavailable");
  const away = await request("");
  expect([away.status, away.headers.has("retry-after")]).toEqual([503, true]);
  failure = undefined;
  expect((await request("")).status).toBe(200);
});
