import { credentials } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { headers as newHeaders } from "nats";
import { NotificationServiceClient, NotificationServiceService } from "../../src/gen/avion/notifications.js";
import { type Broker, startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import type { Mutant } from "../faults/mutants/mutants.js";
import { testOnPostgres } from "./databases.js";
import { eventually } from "./eventually.js";
import { recordRow } from "./fault-rows.js";
import { callsOf } from "./grpc.js";
import { inWords } from "./notifications.js";
import { OWNERS, OwnHistory, PEOPLE } from "./own-history.js";
import { shownOn } from "./own-oracle.js";
import { checkDrops, checkNotifications, type Listed, Listening, type ToldFindings } from "./own-streams.js";
import { type Postgres, startPostgres } from "./postgres.js";
import { TcpProxy } from "./proxy.js";
import { type Random, seeded } from "./random.js";
import { downIds, openReader, pagesDown, type Reader } from "./reader.js";
import { type Stack, startStack } from "./stack.js";
import { Supervisor } from "./supervisor.js";

export interface OwnRunOptions {
  readonly seed: number;
  /** AVION_TEST_FAILPOINTS of these roles. */
  readonly failpoints?: Readonly<Partial<Record<"fanout" | "notifications", string>>>;
  /** After so many deaths the workers run unharmed. */
  readonly deathsMax?: number;
  /** The workers have a broken part. */
  readonly mutant?: Mutant;
}

const ENV = {
  TIMELINE_ACK_WAIT_MS: "3500",
  TIMELINE_RETRY_BASE_MS: "50",
  TIMELINE_FANOUT_CHUNK_SIZE: "3",
  TIMELINE_HOME_REPLIES: "followed",
  TIMELINE_USER_SERVICE_ADDR: "",
  TIMELINE_POST_SERVICE_ADDR: "",
};
const SETTLING_MS = 60_000;
const MUTANT_MS = 10_000;
const AGAIN = "Test-Again";

export type OwnFindings = ToldFindings & {
  /** No event may become a dead letter. */
  readonly deadLetters: readonly string[];
};

type Parts = Pick<OwnRun, "random" | "stack" | "postgres" | "natsLink" | "front" | "workers" | "tellers" | "history">;

/** An address where nobody answers. */
const NOWHERE = "127.0.0.1:1";

/**
 * Lists, notifications, and the streams that tell of them, on the roles users and posts. The process of these is hit by
 * outages only; the workers of fanout and notifications, and the front of api and gateway, die, too, and are started again.
 */
export class OwnRun {
  readonly listening: Listening[] = [];
  recoveredMs = 0;
  settlingMs = SETTLING_MS;
  #reader: { readonly address: string; readonly reads: Reader } | undefined;
  readonly #brokers: { redisServer: Broker; natsServer: Broker };

  /** For the scenario; the history has its own. */
  readonly random: Random;
  readonly stack: Stack;
  readonly postgres: Postgres;
  readonly natsLink: TcpProxy;
  readonly front: Supervisor;
  readonly workers: Supervisor;
  readonly tellers: Supervisor;
  readonly history: OwnHistory;

  private constructor(parts: Parts) {
    this.random = parts.random;
    this.stack = parts.stack;
    this.postgres = parts.postgres;
    this.natsLink = parts.natsLink;
    this.front = parts.front;
    this.workers = parts.workers;
    this.tellers = parts.tellers;
    this.history = parts.history;
    this.#brokers = { redisServer: parts.stack.redisServer, natsServer: parts.stack.natsServer };
  }

  static async open(
    { failpoints = {}, deathsMax = Number.POSITIVE_INFINITY, mutant }: OwnRunOptions,
    seed: number,
  ): Promise<OwnRun> {
    const stack = await startStack({ service: false, env: ENV });
    try {
      const [postgres, natsLink] = await Promise.all([startPostgres(), TcpProxy.open(stack.natsServer.port)]);
      stack.defer(() => postgres.stop());
      stack.defer(() => natsLink.close());
      const env = { DATABASE_URL: postgres.url };
      const { grpcAddress } = await stack.start({ roles: "users,posts,bridge", env });
      const upstreams = { TIMELINE_USER_SERVICE_ADDR: grpcAddress, TIMELINE_POST_SERVICE_ADDR: grpcAddress };
      const [front, workers, tellers] = [new Supervisor(stack), new Supervisor(stack), new Supervisor(stack)];
      const command = mutant && ["--import", "tsx", "test/faults/mutants/main.ts", mutant];
      const how = { env: { ...env, ...upstreams, NATS_URL: natsLink.url("nats") }, deathsMax, command };
      await Promise.all([
        front.start({ roles: "api,gateway", env: upstreams }),
        workers.start({ ...how, roles: "fanout", failpoints: failpoints.fanout }),
        tellers.start({ ...how, roles: "notifications", failpoints: failpoints.notifications }),
      ]);
      const history = new OwnHistory(grpcAddress, seeded(seed));
      stack.defer(() => history.close());
      const random = seeded(seed + 1);
      const run = new OwnRun({ random, stack, postgres, natsLink, front, workers, tellers, history });
      await run.#begin();
      return run;
    } catch (error) {
      await stack.stop();
      throw stack.explain(error);
    }
  }

  get deaths(): number {
    return this.#supervisors.reduce((deaths, supervisor) => deaths + supervisor.deaths, 0);
  }

  get #supervisors(): readonly Supervisor[] {
    return [this.front, this.workers, this.tellers];
  }

  /** Reads pages from the process that runs now. */
  get reads(): Reader {
    const address = this.front.running[0]?.grpcAddress ?? NOWHERE;
    if (this.#reader?.address !== address) {
      this.#reader?.reads.close();
      this.#reader = { address, reads: openReader(address) };
    }
    return this.#reader.reads;
  }

  /** Stores what streams hold once more, newest first, as other messages. */
  async again(...names: readonly string[]): Promise<void> {
    const { streams } = this.stack;
    const headers = newHeaders();
    headers.set(AGAIN, "1");
    for (const name of names) {
      const stored = (await streams.all(name)).filter((message) => message.headers[AGAIN] === undefined);
      for (const { subject, body } of stored.toReversed())
        await streams.connection.jetstream().publish(subject, body, { headers });
    }
  }

  /** The server is away until the function returned is called. */
  async kill(name: "redisServer" | "natsServer"): Promise<() => Promise<void>> {
    const { dir, port } = this.#brokers[name];
    this.#brokers[name].kill("SIGKILL");
    await this.#brokers[name].exited;
    return async () => {
      const again = await (name === "redisServer"
        ? startRedis({ dir, port, appendonly: true })
        : startNats({ dir, port }));
      this.#brokers[name] = again;
      this.stack.afterServices(() => again.stop());
      await this.stack.streams.answering();
    };
  }

  /** Every client ends its connection, and resumes. Owners read their lists, which lets some be rebuilt. */
  async resume(): Promise<void> {
    await Promise.all(this.listening.map((listening) => listening.resume()));
    for (const [id, { owner }] of this.history.lists) void this.reads.list(owner, id).catch(() => undefined);
  }

  /** Waits until all events are applied and nothing is missing; findings name what is missing by then. */
  async settled(): Promise<void> {
    const from = Date.now();
    const isIdle = async (): Promise<true | string> => {
      const infos = await Promise.all(
        CONSUMERS.map(([stream, consumer]) => this.stack.streams.manager.consumers.info(stream, consumer)),
      ).catch(() => []);
      const busy = infos.find(({ num_pending, num_ack_pending }) => num_pending + num_ack_pending > 0);
      if (infos.length === 0) return "NATS does not answer";
      return busy === undefined || `${busy.name}: ${busy.num_pending} waiting, ${busy.num_ack_pending} in work`;
    };
    const { settlingMs } = this;
    await eventually(isIdle, "all consumers are idle", settlingMs);
    const isWhole = async () => {
      const { lost, unexpected } = await this.findings();
      return [...lost, ...unexpected].join("; ") || true;
    };
    await eventually(isWhole, "nothing is missing", settlingMs).catch(() => undefined);
    this.recoveredMs = Date.now() - Math.max(from, ...this.#supervisors.map(({ lastDeathAt }) => lastDeathAt));
  }

  async findings(): Promise<OwnFindings> {
    const found = { lost: [], duplicated: [], resurrected: [], unexpected: [] } as ToldFindings;
    for (const listening of this.listening)
      if (listening.timeline !== "home") checkDrops(this.history, listening, found);
    for (const user of PEOPLE) {
      const stream = this.listening.find((listening) => listening.user === user && listening.timeline === "home");
      checkNotifications(this.history, { user, stream, listed: await this.#notifications(user) }, found);
    }
    await this.#checkLists(found);
    const deadLetters = (await this.stack.streams.all("DLQ")).map(({ subject, body }) => `${subject} ${String(body)}`);
    return { ...found, deadLetters };
  }

  async close(): Promise<void> {
    for (const listening of this.listening) listening.close();
    this.#reader?.reads.close();
    await Promise.all(this.#supervisors.map((supervisor) => supervisor.stopAll()));
    await this.stack.stop();
  }

  async #begin(): Promise<void> {
    const { history, front, listening } = this;
    const url = (): string => front.running[0]?.httpUrl ?? `http://${NOWHERE}`;
    await history.begin();
    await this.settled();
    const listed = await Promise.all(OWNERS.map((user) => this.#notifications(user)));
    const known = new Set([...history.world.drops.keys(), ...listed.flat().map(({ id }) => id)]);
    for (const user of OWNERS)
      for (const timeline of ["home", "local", "global"] as const)
        listening.push(await Listening.open(url, { user, timeline, known }));
    for (const [id, { owner, stream }] of history.lists)
      if (stream) listening.push(await Listening.open(url, { user: owner, timeline: `list/${id}`, known }));
  }

  async #notifications(user: string): Promise<Listed[]> {
    const [teller] = this.tellers.running;
    const client = new NotificationServiceClient(teller?.grpcAddress ?? NOWHERE, credentials.createInsecure());
    const { listNotifications } = callsOf(client, NotificationServiceService);
    try {
      const listed: Listed[] = [];
      for (let max_id = "", more = true; more; ) {
        const page = await listNotifications({ user_id: user, limit: 100, max_id });
        listed.push(...inWords(page).map((words, at) => ({ words, id: page.notifications[at]?.id ?? "" })));
        [more, max_id] = [page.has_more, page.next_max_id];
      }
      return listed;
    } finally {
      client.close();
    }
  }

  async #checkLists({ lost, unexpected, duplicated }: ToldFindings): Promise<void> {
    const { reads, history } = this;
    for (const [id, list] of history.lists) {
      const pages = await pagesDown((query) => reads.list(list.owner, id, query), { limit: 40 });
      const [shown, wanted] = [downIds(pages), shownOn(history, list)];
      const on = (drop: string): string => `${drop} on the list ${list.title} of ${list.owner}`;
      if (pages.some(({ degraded }) => degraded)) lost.push(on("a page"));
      lost.push(...wanted.filter((drop) => !shown.includes(drop)).map(on));
      unexpected.push(...shown.filter((drop) => !wanted.includes(drop)).map(on));
      duplicated.push(...shown.filter((drop, at) => shown.indexOf(drop) !== at).map(on));
      const title = await history.titleOf(id, list.owner);
      if (title !== list.title) unexpected.push(on(`title ${title}`));
    }
    for (const { id, owner } of history.deletedLists)
      if ((await history.titleOf(id, owner)) !== undefined) unexpected.push(`the deleted list ${id}`);
  }
}

const CONSUMERS = [
  ["DROPS", "planner"],
  ["DROPS", "graph"],
  ["DROPS", "notifications"],
  ["ACTIVITY", "activities"],
  ["FANOUT", "worker"],
  ["FANOUT", "notifications-hot"],
  ["EDGES", "edges"],
] as const;

const CLEAN: OwnFindings = { lost: [], duplicated: [], resurrected: [], unexpected: [], deadLetters: [] };

/** A fault while people go on. Then the run settles, everything is compared, and the function returned is called. */
export type OwnScenario = (run: OwnRun) => Promise<undefined | (() => unknown)>;

/** Declares a test of one fault: after it everything is as the history says. */
export function ownTest(name: string, options: OwnRunOptions, scenario: OwnScenario): void {
  declareRun(name, { options, scenario }, (found) => expect(found).toEqual(CLEAN));
}

/** Declares a test of the oracle: the same scenario must have findings where the workers have a broken part. */
export function ownMutantTest(mutant: Mutant, options: OwnRunOptions, scenario: OwnScenario): void {
  const broken = { ...options, mutant };
  declareRun(`the oracle notices workers without \`${mutant}\``, { options: broken, scenario }, (found) =>
    expect(found).not.toEqual(CLEAN),
  );
}

function declareRun(
  name: string,
  { options, scenario }: { readonly options: OwnRunOptions; readonly scenario: OwnScenario },
  expectFindings: (found: OwnFindings) => void,
): void {
  const seed = Number(process.env["FAULTS_SEED"] ?? options.seed);
  testOnPostgres(`${name} (seed ${seed})`, async () => {
    const run = await OwnRun.open(options, seed);
    try {
      // Events that never come are not waited for.
      if (options.mutant) run.settlingMs = MUTANT_MS;
      const check = await scenario(run);
      await run.settled();
      const found = await run.findings();
      const { deadLetters, ...told } = found;
      const counts = { ...told, unexpected: [...told.unexpected, ...deadLetters], broken: [], unfulfilled: [] };
      recordRow(name, { events: run.history, supervisor: run, recoveredMs: run.recoveredMs }, counts);
      expectFindings(found);
      await check?.();
    } catch (error) {
      throw run.stack.explain(error);
    } finally {
      await run.close();
    }
  });
}
