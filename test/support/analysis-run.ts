import { appendFileSync } from "node:fs";
import { expect } from "@jest/globals";
import { headers as newHeaders } from "nats";
import pg from "pg";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import type { Mutant } from "../faults/mutants/mutants.js";
import { type AppView, startAppView } from "./appview.js";
import { testOnPostgres } from "./databases.js";
import { eventually } from "./eventually.js";
import { type Postgres, startPostgres } from "./postgres.js";
import { TcpProxy } from "./proxy.js";
import { oneOf, type Random, seeded } from "./random.js";
import type { Service } from "./service.js";
import { type EventStream, openEvents } from "./sse.js";
import { type Stack, startStack } from "./stack.js";
import type { Stored } from "./streams.js";
import { Supervisor } from "./supervisor.js";
import { tokenOf } from "./tokens.js";

export interface SagaOptions {
  readonly seed: number;
  /** AVION_TEST_FAILPOINTS of the workers. */
  readonly failpoints?: string;
  /** After so many deaths the workers run unharmed. */
  readonly deathsMax?: number;
  readonly mutant?: Mutant;
  /** Each request is sent twice at once, with one key. */
  readonly doubled?: boolean;
}

const ENV = { TIMELINE_ACK_WAIT_MS: "3500", TIMELINE_RETRY_BASE_MS: "50", TIMELINE_ANALYSIS_SOURCE_RATE: "1000000" };
const TIERS = { ben: "LIFT", cleo: "JET", dan: "ORBIT" } as const;
const USERS = Object.keys(TIERS) as (keyof typeof TIERS)[];
const OWN = ["nova", "orion", "pavo"];
const plc = (name: string): string => `did:plc:${name.padEnd(24, "7")}`;
export const KNOWN = [plc("ada"), "did:web:anna.example", plc("arno")];
/** The answer of the AppView fails them at once. */
const GONE = [plc("nobody"), "did:web:suspended.example"];
const TYPES = ["flow", "clout", "kudos", "pulse", "full"];
const SETTLING_MS = 90_000;
const STREAMS_MS = 15_000;

type Json = Readonly<Record<string, unknown>>;

interface Asked {
  readonly id: string;
  readonly user: string;
  readonly did: string;
}

/** The saga as processes: a gateway that no fault hits, and workers that are started again whenever they die. */
export class Saga {
  readonly asked: Asked[] = [];
  /** Accounts that the source fails for, until it is healed. */
  readonly failing = new Set<string>();
  readonly #tokens = new Map<string, string>();
  readonly #eventStreams = new Map<string, EventStream>();
  #keys = 0;
  recoveredMs = 0;
  streamsMs = STREAMS_MS;

  readonly stack: Stack;
  readonly postgres: Postgres;
  readonly natsLink: TcpProxy;
  readonly supervisor: Supervisor;
  readonly gateway: Service;
  view: AppView;

  private constructor(
    readonly options: SagaOptions,
    readonly random: Random,
    parts: Pick<Saga, "stack" | "postgres" | "natsLink" | "supervisor" | "gateway" | "view">,
  ) {
    const { stack, postgres, natsLink, supervisor, gateway, view } = parts;
    this.stack = stack;
    this.postgres = postgres;
    this.natsLink = natsLink;
    this.supervisor = supervisor;
    this.gateway = gateway;
    this.view = view;
  }

  static async open(options: SagaOptions, seed: number): Promise<Saga> {
    const stack = await startStack({ service: false, env: ENV });
    try {
      const [postgres, view, natsLink] = await Promise.all([
        startPostgres(),
        startAppView(),
        TcpProxy.open(stack.natsServer.port),
      ]);
      stack.defer(() => postgres.stop());
      stack.defer(() => natsLink.close());
      populate(stack, view);
      const { failpoints, deathsMax = Number.POSITIVE_INFINITY, mutant } = options;
      const env = {
        DATABASE_URL: postgres.url,
        TIMELINE_ATPROTO_URL: view.url,
      };
      const supervisor = new Supervisor(stack);
      stack.defer(() => supervisor.stopAll());
      const command = mutant && ["--import", "tsx", "test/faults/mutants/main.ts", mutant];
      const linked = { ...env, NATS_URL: natsLink.url("nats") };
      const [gateway] = await Promise.all([
        stack.start({ roles: "gateway", env }),
        ...["analysis", "rewards"].map((roles) =>
          supervisor.start({ roles, env: linked, failpoints, deathsMax, command }),
        ),
      ]);
      const saga = new Saga(options, seeded(seed), { stack, postgres, view, natsLink, supervisor, gateway });
      for (const user of USERS) {
        saga.#tokens.set(user, await tokenOf(user, { claims: { tier: TIERS[user] } }));
        saga.#eventStreams.set(user, await openEvents(gateway.httpUrl, user));
      }
      return saga;
    } catch (error) {
      await stack.stop();
      throw stack.explain(error);
    }
  }

  /** Asks for so many analyses; a 503 is asked again with the same key, until there is a 202. */
  async ask(count: number, accounts: readonly string[] = [...OWN, ...KNOWN, ...GONE]): Promise<void> {
    await Promise.all(Array.from({ length: count }, () => this.#askOne(accounts)));
  }

  async #askOne(accounts: readonly string[]): Promise<void> {
    const [user, did, type] = [oneOf(this.random, USERS), oneOf(this.random, accounts), oneOf(this.random, TYPES)];
    const headers = { "idempotency-key": `"${++this.#keys}"` };
    const body = JSON.stringify({ did, type });
    const accepted = async (): Promise<string> => {
      const found: { id?: string } = {};
      const isAccepted = async () => {
        const answer = await this.call(user, "/api/v1/timeline/analyze", { method: "POST", headers, body });
        found.id = String(answer.json["analysis_id"]);
        return answer.status === 202 || `${answer.status} ${JSON.stringify(answer.json)}`;
      };
      await eventually(isAccepted, "a request is accepted", SETTLING_MS);
      return String(found.id);
    };
    const ids = new Set(await Promise.all(this.options.doubled ? [accepted(), accepted()] : [accepted()]));
    expect(ids.size).toBe(1);
    for (const id of ids) this.asked.push({ id, user, did });
  }

  async call(
    user: string,
    path: string,
    how: Omit<RequestInit, "headers"> & { headers?: Readonly<Record<string, string>> } = {},
  ): Promise<{ status: number; json: Json }> {
    const headers = new Headers({ "content-type": "application/json", ...how.headers });
    headers.set("authorization", `Bearer ${this.#tokens.get(user)}`);
    const response = await fetch(this.gateway.httpUrl + path, { ...how, headers });
    return { status: response.status, json: (await response.json()) as Json };
  }

  /** Stores what a stream holds once more, as other messages. */
  async again(stream: string, subject: string): Promise<number> {
    const { streams } = this.stack;
    const found = (await streams.all(stream)).filter((one) => one.subject === subject && !isAgain(one));
    const again = newHeaders();
    again.set(AGAIN, "1");
    for (const { body } of found) await streams.connection.jetstream().publish(subject, body, { headers: again });
    return found.length;
  }

  /** The server is gone until the function returned is called. */
  async kill(name: "redisServer" | "natsServer"): Promise<() => Promise<void>> {
    const server: Broker = this.stack[name];
    const { dir, port } = server;
    server.kill("SIGKILL");
    await server.exited;
    return async () => {
      const restarted = await (name === "redisServer"
        ? startRedis({ dir, port, appendonly: true })
        : startNats({ dir, port }));
      this.stack.defer(() => restarted.stop());
      await this.stack.streams.answering();
    };
  }

  /** The AppView is unreachable until the function returned is called. */
  async stopView(): Promise<() => Promise<void>> {
    await this.view.stop();
    return async () => {
      this.view = await startAppView(Number(new URL(this.view.url).port));
      populate(this.stack, this.view);
    };
  }

  /** Number of failed attempts, without those that the account's own answer failed. */
  async attemptsSpent(): Promise<number> {
    const failed = (await this.#bodies("TIMELINE_EVENTS")).filter(({ error_code }) => error_code !== undefined);
    return failed.filter(({ error_code }) => !String(error_code).startsWith("account_")).length;
  }

  async settled(): Promise<void> {
    const from = Date.now();
    const open = async (): Promise<true | string> => {
      const { manager } = this.stack.streams;
      const left = await Promise.all([
        manager.consumers.info("TIMELINE", "analysis"),
        manager.consumers.info("TIMELINE_EVENTS", "rewards"),
      ]).catch(() => undefined);
      const messages = left?.reduce((sum, one) => sum + one.num_pending + one.num_ack_pending, 0);
      return messages === 0 || `${messages} messages are left`;
    };
    await eventually(open, "the saga is settled", SETTLING_MS);
    this.recoveredMs = Date.now() - Math.max(from, this.supervisor.lastDeathAt);
    const isComplete = async () => (await this.findings()).lost.join("; ") === "";
    await eventually(isComplete, "every user is notified", this.streamsMs).catch(() => undefined);
  }

  /** Every 202 has one end; a completed analysis has one event, one reward and one of each notification. */
  async findings(): Promise<Findings> {
    const findings: Findings = { lost: [], duplicated: [], unexpected: [] };
    const [events, earned, deadLetters] = await Promise.all(
      ["TIMELINE_EVENTS", "GAMIFICATION", "DLQ"].map((stream) => this.#bodies(stream)),
    );
    const sent = [...this.#eventStreams.values()].flatMap((stream) => stream.events);
    const rewards = await this.#rewards();
    const expectOnce = (what: string, found: number, wanted: number): void => {
      if (found < wanted) findings.lost.push(what);
      if (found > wanted) (wanted === 0 ? findings.unexpected : findings.duplicated).push(what);
    };
    for (const { id, user, did } of this.asked) {
      const { json } = await this.call(user, `/api/v1/timeline/analyses/${id}`);
      const isDone = json["status"] === "completed";
      const done = isDone ? 1 : 0;
      const of = (some: readonly Json[] = []) => some.filter((one) => (one["analysis_id"] ?? one["event_id"]) === id);
      const notified = (event: string) => of(sent.filter((one) => one.event === event).map(({ data }) => data)).length;
      const ended = of(events).filter((one) => one["final"] === true).length + of(deadLetters).length;
      const shouldFail = GONE.includes(did) || this.failing.has(did);
      if (!isDone && ended === 0) findings.lost.push(`${id} of ${did} is ${String(json["status"])}`);
      if (isDone === shouldFail) findings.unexpected.push(`${id} of ${did} is ${String(json["status"])}`);
      expectOnce(
        `completed event of ${id}`,
        of(events).filter((one) => one["completed_at"] !== undefined).length,
        done,
      );
      expectOnce(`dead letter of ${id}`, of(deadLetters).length, this.failing.has(did) ? 1 : 0);
      expectOnce(
        `transaction of ${id}`,
        rewards.filter((one) => one.event_id === id && one.user_id === user).length,
        done,
      );
      expectOnce(`xp.earned of ${id}`, of(earned).length, done);
      expectOnce(`analysis_completed of ${id}`, notified("analysis_completed"), done);
      expectOnce(`xp_earned of ${id}`, notified("xp_earned"), done);
      expectOnce(`analysis_failed of ${id}`, notified("analysis_failed"), 1 - done);
    }
    for (const user of USERS) {
      const { json } = await this.call(user, "/api/v1/xp?limit=100");
      const sum = rewards.filter((one) => one.user_id === user).reduce((all, { amount }) => all + Number(amount), 0);
      if (json["total"] !== sum)
        findings.unexpected.push(`total of ${user}: ${String(json["total"])} instead of ${sum}`);
    }
    return findings;
  }

  async close(): Promise<void> {
    for (const stream of this.#eventStreams.values()) stream.close();
    await this.stack.stop();
  }

  async #bodies(stream: string): Promise<Json[]> {
    const found = await this.stack.streams.all(stream);
    return found.filter((one) => !isAgain(one)).map(({ body }) => JSON.parse(String(body)) as Json);
  }

  async #rewards(): Promise<{ event_id: string; user_id: string; amount: string }[]> {
    const client = new pg.Client(this.postgres.url);
    await client.connect();
    const { rows } = await client.query("SELECT event_id, user_id, amount FROM xp_transactions");
    await client.end();
    return rows;
  }
}

const AGAIN = "Test-Again";
const isAgain = ({ headers }: Stored): boolean => headers[AGAIN] !== undefined;

interface Findings {
  readonly lost: string[];
  readonly duplicated: string[];
  readonly unexpected: string[];
}

function populate({ world }: Stack, view: AppView): void {
  const now = Date.now();
  for (const user of OWN) world.post({ drop_id: `${user}-1`, user_id: user, created_at: now - 60_000 });
  for (const did of KNOWN) view.post(did, { createdAt: now - 60_000, likes: 3 });
  view.suspend(GONE[1] as string);
}

const CLEAN: Findings = { lost: [], duplicated: [], unexpected: [] };

/** A fault while analyses are asked for. Then the saga settles, everything is compared, and the function returned is run. */
export type SagaScenario = (saga: Saga) => Promise<undefined | (() => unknown)>;

/** A test of one fault: after it every 202 has its one end. */
export function sagaTest(name: string, options: SagaOptions, scenario: SagaScenario): void {
  run(name, options, scenario, (found) => expect(found).toEqual(CLEAN));
}

/** A test of the oracle: where the workers have a broken part the same scenario must not come out clean. */
export function sagaMutantTest(mutant: Mutant, options: SagaOptions, scenario: SagaScenario): void {
  const broken = { ...options, mutant };
  run(`the oracle notices analyses without \`${mutant}\``, broken, scenario, (found) =>
    expect(found).not.toEqual(CLEAN),
  );
}

function run(
  name: string,
  options: SagaOptions,
  scenario: SagaScenario,
  expectFindings: (found: Findings) => void,
): void {
  const seed = Number(process.env["FAULTS_SEED"] ?? options.seed);
  testOnPostgres(`analyses: ${name} (seed ${seed})`, async () => {
    const saga = await Saga.open(options, seed);
    try {
      // Events that never come are not waited for.
      if (options.mutant) saga.streamsMs = 1_000;
      const check = await scenario(saga);
      await saga.settled();
      const found = await saga.findings();
      recordRow(name, saga, found);
      expectFindings(found);
      await check?.();
    } catch (error) {
      throw saga.stack.explain(error);
    } finally {
      await saga.close();
    }
  });
}

/** The reporter prints these rows as a table at the end. */
function recordRow(fault: string, { asked, supervisor, recoveredMs }: Saga, found: Findings): void {
  const file = process.env["FAULTS_ROWS"];
  if (file === undefined) return;
  const counts = Object.fromEntries(Object.entries(found).map(([name, all]) => [name, all.length]));
  const others = { broken: 0, resurrected: 0, unfulfilled: 0 };
  const row = {
    fault: `analyses: ${fault}`,
    events: asked.length,
    deaths: supervisor.deaths,
    recoveredMs,
    ...counts,
    ...others,
  };
  appendFileSync(file, `${JSON.stringify(row)}\n`);
}
