import { afterAll, beforeAll } from "@jest/globals";
import { createAnalysisApi } from "../../src/analysis/http/index.js";
import type { Rewards } from "../../src/analysis/http/read.js";
import { ANALYSIS_MIGRATIONS } from "../../src/analysis/index.js";
import { createAuthenticate, createAuthorize } from "../../src/gateway/auth.js";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { type HttpServer, serveHttp } from "../../src/platform/http/serve.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { REWARDS_MIGRATIONS } from "../../src/rewards/index.js";
import type { State } from "../../src/state/index.js";
import { DATABASES, type DatabaseServer } from "./databases.js";
import { type NatsBench, openNats } from "./nats.js";
import { checkAnswer } from "./openapi.js";
import { openRedis, type RedisBench } from "./redis.js";
import { JWT_SECRET } from "./service.js";
import { stateOn } from "./state.js";
import { tokenOf } from "./tokens.js";

const ALLOWED_ORIGINS = ["https://app.example"];

/** The routes of analyses on real servers, in the test's process. */
export interface AnalysisBench {
  readonly nats: NatsBench;
  readonly redis: RedisBench;
  readonly state: State;
  readonly db: Db;
  readonly url: string;
  /** Starts the routes once more, on these handles instead. */
  another(handles: Partial<Parameters<typeof createAnalysisApi>[0]>): Promise<string>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: ReturnType<typeof JSON.parse>;
}

/** One bench for all tests of a file, which use users of their own. */
export function sharedAnalysisBench({ rewards }: { readonly rewards?: (db: Db) => Rewards } = {}): AnalysisBench {
  const made: { bench?: AnalysisBench } = {};
  const servers: HttpServer[] = [];
  let [nats, redis, databases]: [NatsBench?, RedisBench?, DatabaseServer?] = [];
  beforeAll(async () => {
    [nats, redis, databases] = await Promise.all([openNats(), openRedis(), DATABASES[0]?.start()]);
    const db = (await databases?.newDatabase()) as Db;
    await migrate(db, [ANALYSIS_MIGRATIONS, REWARDS_MIGRATIONS], silent);
    const { connection } = nats;
    const state = stateOn(redis.scripts, nats);
    const usual = {
      state,
      authorize: createAuthorize(createAuthenticate({ jwtSecrets: [JWT_SECRET] }), new Set(ALLOWED_ORIGINS)),
      allowedOrigins: ALLOWED_ORIGINS,
      ...{ nats: connection, ...createPublisher(connection), db, log: silent },
      connected: () => true,
      upstreams: undefined,
      servesTimelines: false,
      servesNotifications: false,
      ...{ pathPrefix: "", channelPrefix: "" },
      rewards: rewards?.(db),
    };
    const another: AnalysisBench["another"] = async (handles) => {
      const server = await serveHttp({
        ...{ address: "127.0.0.1:0", notReady: () => [], log: silent },
        metrics: (_request, response) => void response.end(),
      });
      server.use(createAnalysisApi({ ...usual, ...handles }));
      server.complete();
      servers.push(server);
      return `http://127.0.0.1:${server.port}`;
    };
    made.bench = { nats, redis, state, db, url: await another({}), another };
  });
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.close(0)));
    await Promise.all([nats?.close(), redis?.close(), databases?.stop()]);
  });
  return new Proxy({} as AnalysisBench, { get: (_none, name) => Reflect.get(made.bench as AnalysisBench, name) });
}

export interface Call {
  readonly user?: string;
  readonly tier?: string;
  readonly method?: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Asks as a user, and checks the answer against the OpenAPI document; a body that is no text is sent as JSON. */
export async function call(url: string, { user, tier, method = "GET", body, headers }: Call = {}): Promise<Answer> {
  const token = user === undefined ? undefined : await tokenOf(user, { claims: tier === undefined ? {} : { tier } });
  const response = await fetch(url, {
    method,
    headers: {
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  const answer = {
    status: response.status,
    headers: response.headers,
    body: text === "" ? undefined : JSON.parse(text),
  };
  checkAnswer(method, url, answer);
  return answer;
}

/** Asks for an analysis. */
export const post = (url: string, user: string, { body = { did: "bob", type: "flow" }, ...how }: Call = {}) =>
  call(`${url}/api/v1/timeline/analyze`, { user, method: "POST", body, ...how });
