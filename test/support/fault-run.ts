import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "@jest/globals";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import type { Mutant } from "../faults/mutants/mutants.js";
import { missingFrom } from "./admitted-events.js";
import { AckWatcher, brokenLaws, dropOf } from "./conservation.js";
import { eventually } from "./eventually.js";
import { recordRow } from "./fault-rows.js";
import { type Findings, findingsOf, missedOnStreams, type RunResult, wrongOnPages } from "./findings.js";
import { EventHistory, type HistoryOptions } from "./history.js";
import { MUTERS, PEOPLE, READERS, UNREAD } from "./history-cast.js";
import { lastEnd } from "./oracle-people.js";
import { TcpProxy } from "./proxy.js";
import { duplicatedAndShuffled, oneOf, type Random, seeded } from "./random.js";
import { openReader, type Reader } from "./reader.js";
import type { Service } from "./service.js";
import { type EventStream, openEvents } from "./sse.js";
import { type Stack, startStack } from "./stack.js";
import { Supervisor } from "./supervisor.js";
import type { TimelineEvent } from "./timeline-events.js";
import { heldBy, homeKey } from "./timeline-keys.js";

/** The defaults are the whole history, one worker, and a gateway process that no fault hits. */
export type FaultRunOptions = HistoryOptions & {
  /** The same seed makes the same history. FAULTS_SEED overrides it. */
  readonly seed?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** The workers get this as AVION_TEST_FAILPOINTS. */
  readonly failpoints?: string;
  /** The workers have a broken part. */
  readonly mutant?: Mutant;
  /** After so many deaths the workers run unharmed. */
  readonly deathsMax?: number;
  readonly workers?: number;
  /**
   * Each bridge is a process of its own with this AVION_TEST_FAILPOINTS. Without any, the gateway process is the
   * bridge, and is not killed.
   */
  readonly bridges?: readonly string[];
  /**
   * A stopped worker may go on after others have done its work: it needs a moment to remove what it has written again.
   */
  readonly zombies?: boolean;
  /** Events are published twice and in any order. */
  readonly shuffled?: boolean;
};

/** Messages of a dead process are redelivered as soon as possible, and chunks are small. */
const ENV = {
  TIMELINE_ACK_WAIT_MS: "3500",
  TIMELINE_RETRY_BASE_MS: "50",
  TIMELINE_FANOUT_CHUNK_SIZE: "8",
};
const LISTENERS = [READERS[0], READERS[7]] as string[];
const SETTLING_MS = 90_000;
/** A message that has met an outage waits for less than this until its next attempt. */
const ZOMBIE_MS = 8_000;
/** A registration that Redis has lost is noticed, and the event stream reset, within this time. */
const STREAMS_MS = 25_000;
/** Pages follow a standing, its end and that of a mute within this time. */
const FOLLOWING_MS = 5_000;
const READ_MS = 1_000;

/** `broken` names messages that were acked but not applied at one of the checks. */
export type Found = Findings & { readonly broken: readonly string[] };

/** Runs one scenario: the servers, processes and links that faults hit, and the history of events that they handle. */
export class FaultRun {
  readonly events: TimelineEvent[] = [];
  readonly invalidMessages: string[] = [];
  /** These messages were acked but not applied at one of the checks. */
  readonly broken: string[] = [];
  readonly eventStreams = new Map<string, EventStream>();
  readonly #lostHomes = new Set<string>();
  readonly history: EventHistory;
  readonly #ackWatcher: AckWatcher;
  /** Both are the servers that run, or were killed last: a scenario may kill one more than once. */
  #redisServer: Broker;
  #natsServer: Broker;
  #eventsBeforeStreams = 0;
  readonly #settledAt: number[] = [];
  #faultEndedAt = 0;
  recoveredMs = 0;
  streamsMs = STREAMS_MS;

  readonly stack: Stack;
  readonly supervisor: Supervisor;
  readonly redisLink: TcpProxy;
  readonly natsLink: TcpProxy;

  private constructor(
    readonly options: FaultRunOptions,
    readonly random: Random,
    { stack, redisLink, natsLink }: Pick<FaultRun, "stack" | "redisLink" | "natsLink">,
  ) {
    this.stack = stack;
    this.#redisServer = stack.redisServer;
    this.#natsServer = stack.natsServer;
    this.supervisor = new Supervisor(stack);
    this.redisLink = redisLink;
    this.natsLink = natsLink;
    this.history = new EventHistory(random, stack.world, options);
    this.#ackWatcher = new AckWatcher(stack.streams.connection);
  }

  gateway!: Service;
  reads!: Reader;

  static async open(options: FaultRunOptions, seed: number): Promise<FaultRun> {
    const stack = await startStack({ service: false, env: { ...ENV, ...options.env } });
    const redisLink = await TcpProxy.open(stack.redisServer.port);
    const natsLink = await TcpProxy.open(stack.natsServer.port);
    stack.defer(() => redisLink.close());
    stack.defer(() => natsLink.close());
    const run = new FaultRun(options, seeded(seed), { stack, redisLink, natsLink });
    try {
      await run.#begin();
      return run;
    } catch (error) {
      await run.close();
      throw error;
    }
  }

  /** The addresses are those of the proxies, for processes whose links are to fail. */
  get linked(): Readonly<Record<string, string>> {
    return { REDIS_URL: this.redisLink.url("redis"), NATS_URL: this.natsLink.url("nats") };
  }

  /** Starts one more supervised writer. */
  startWriter(failpoints: string | undefined = this.options.failpoints): Promise<Service> {
    const { deathsMax, mutant } = this.options;
    const options = { roles: "fanout", env: this.linked, failpoints, command: mutant && mutantCommand(mutant) };
    return this.supervisor.start(deathsMax === undefined ? options : { ...options, deathsMax });
  }

  /** Starts one more supervised bridge; "" arms no failpoint. */
  startBridge(failpoints: string, deathsMax: number): Promise<Service> {
    return this.supervisor.start({ roles: "bridge", env: {}, deathsMax, ...(failpoints === "" ? {} : { failpoints }) });
  }

  /** Publishes the next steps of the history. */
  async publishSteps(steps: number): Promise<void> {
    await this.publish(...this.history.next(steps));
    if (this.options.people === false) return;
    // Some homes are read for the first time, or rebuilt after a mute, while events are under way.
    for (const user of [oneOf(this.random, UNREAD), ...MUTERS])
      void this.reads.home(user, {}, READ_MS).catch(() => undefined);
  }

  /** Publishes events and records them. */
  async publish(...events: readonly TimelineEvent[]): Promise<void> {
    this.events.push(...events);
    await this.stack.publish(...(this.options.shuffled ? duplicatedAndShuffled(this.random, events) : events));
  }

  /** Publishes steps on Redis Pub/Sub without waiting for a bridge: nobody may receive them. */
  async publishUnconfirmed(steps: number): Promise<void> {
    const events = this.history.next(steps);
    this.events.push(...events);
    for (const { channel, payload } of events) await this.stack.redis.publish(channel, JSON.stringify(payload));
  }

  /** Changes the upstreams by the next steps without publishing their events. */
  changeWithoutPublishing(steps: number): void {
    this.events.push(...this.history.next(steps));
  }

  /** Puts a message into the log that is no event. It must become a dead letter. */
  async publishInvalid(body: string): Promise<void> {
    this.invalidMessages.push(body);
    await this.stack.streams.connection.jetstream().publish("drops.created", body);
  }

  /** Deletes the keys of homes, as a Redis that loses them. */
  async loseHomes(...users: readonly string[]): Promise<void> {
    for (const user of users) this.#lostHomes.add(user);
    await this.stack.redis.del(...users.map(homeKey));
  }

  /** Marks the end of the fault: recovery is measured from here. */
  faultEnded(): void {
    this.#faultEndedAt = Date.now();
  }

  /** Stops all writers for a moment and checks the conservation law. */
  async checkConservation(): Promise<void> {
    this.supervisor.signal("SIGSTOP");
    try {
      const { streams, redis } = this.stack;
      this.broken.push(...(await brokenLaws({ streams, redis, ackWatcher: this.#ackWatcher }, this.events)));
    } finally {
      this.supervisor.signal("SIGCONT");
    }
  }

  /** Waits until all events so far are admitted and applied. */
  async done(): Promise<void> {
    const { streams } = this.stack;
    const { length } = this.events;
    await eventually(missingFrom(streams, this.events), "the log holds all events", SETTLING_MS);
    await streams.settledWith(1, SETTLING_MS);
    this.#settledAt.push(length);
  }

  /** Waits until the log holds all events, or what supersedes them, and no consumer or event stream lacks anything. */
  async settled(): Promise<void> {
    const from = Date.now();
    await this.done();
    await eventually(() => isPageComplete(this.reads), "pages are complete", SETTLING_MS);
    this.recoveredMs = Date.now() - Math.max(this.#faultEndedAt || from, this.supervisor.lastDeathAt);
    await this.checkConservation();
    await this.#readIncomplete();
    await this.#standingsInForce();
    await this.#streamsComplete();
  }

  /** Reads homes, so that one that has lost its floor is rebuilt. */
  async readAll(people: readonly string[] = PEOPLE): Promise<void> {
    for (const user of people) {
      const read = async () => !(await this.reads.home(user, { limit: 100 })).degraded;
      await eventually(read, `the home of ${user} is complete`);
    }
    await eventually(async () => !(await this.reads.local()).degraded, "local is complete");
    await eventually(async () => !(await this.reads.global()).degraded, "global is complete");
  }

  /** Returns the findings so far. Call it once everything is settled. */
  async findings(): Promise<Found> {
    return { ...(await findingsOf(this.#result())), broken: [...new Set(this.broken)] };
  }

  /** Returns a function that starts it again. So does {@link killNats}. */
  async killRedis(end = kill): Promise<() => Promise<void>> {
    const { dir, port } = this.#redisServer;
    await end(this.#redisServer);
    return async () => {
      const again = await startRedis({ dir, port, appendonly: true });
      this.stack.defer(() => again.stop());
      this.#redisServer = again;
    };
  }

  async killNats(end = kill): Promise<() => Promise<void>> {
    const { dir, port } = this.#natsServer;
    await end(this.#natsServer);
    return async () => {
      const again = await startNats({ dir, port });
      this.stack.defer(() => again.stop());
      this.#natsServer = again;
      await this.stack.streams.answering();
    };
  }

  async close(): Promise<void> {
    for (const stream of this.eventStreams.values()) stream.close();
    await this.supervisor.stopAll();
    await this.stack.stop();
  }

  async #begin(): Promise<void> {
    const { bridges = [], workers = 1, deathsMax = Number.POSITIVE_INFINITY } = this.options;
    this.gateway = await this.stack.start({ roles: bridges.length > 0 ? "api,gateway" : "bridge,api,gateway" });
    this.stack.defer(() => this.gateway.stop());
    this.reads = openReader(this.gateway.grpcAddress);
    this.stack.defer(() => this.reads.close());
    for (let number = 0; number < workers; number += 1) await this.startWriter();
    for (const failpoints of bridges) await this.startBridge(failpoints, deathsMax);
    await this.readAll(PEOPLE.filter((user) => !UNREAD.includes(user)));
    // Each history begins with drops that can be edited, answered and reposted.
    const events = [...this.history.initialFollows(), ...this.history.next(this.options.people === false ? 0 : 20)];
    this.events.push(...events);
    await this.stack.publish(...events);
    await this.done();
    this.#eventsBeforeStreams = this.events.length;
    for (const user of LISTENERS) this.eventStreams.set(user, await openEvents(this.gateway.httpUrl, user));
  }

  #result(): RunResult {
    const { streams, redis } = this.stack;
    const { events, invalidMessages, eventStreams, reads } = this;
    return {
      streams,
      redis,
      ackWatcher: this.#ackWatcher,
      events,
      invalidMessages,
      eventStreams,
      reads,
      eventsBeforeStreams: this.#eventsBeforeStreams,
      settledAt: this.#settledAt,
      lostHomes: this.#lostHomes,
    };
  }

  /** Homes without a floor have not judged replies, and those of muters may lack drops of an ended mute. */
  async #readIncomplete(): Promise<void> {
    await delay(Math.max(0, lastEnd(this.events) - Date.now()));
    const held = await heldBy(this.stack.redis, PEOPLE.map(homeKey));
    const isComplete = (user: string): boolean => (held.get(homeKey(user))?.floor ?? -1) >= 0;
    await this.readAll(PEOPLE.filter((user) => MUTERS.includes(user) || !isComplete(user)));
  }

  /** Waits as long as pages may take to follow a mute or a standing; findings name what they have not followed by then. */
  async #standingsInForce(): Promise<void> {
    const isClean = async () => (await wrongOnPages(this.#result())).join() || true;
    if (this.options.people !== false)
      await eventually(isClean, "pages follow the standings", FOLLOWING_MS).catch(() => undefined);
  }

  /** Waits for event streams: a notification may still be on its way after everything is applied. */
  async #streamsComplete(): Promise<void> {
    const deadLettered = new Set(
      (await this.stack.streams.all("DLQ")).flatMap((deadLetter) => dropOf(deadLetter) ?? []),
    );
    const isComplete = () => missedOnStreams(this.#result(), deadLettered).length === 0;
    await eventually(isComplete, "the event streams have sent everything", this.streamsMs).catch(() => undefined);
  }
}

async function kill(server: Broker): Promise<void> {
  server.kill("SIGKILL");
  await server.exited;
}

/** The bystander's page is complete once nothing that Redis may have lost is being applied again. */
async function isPageComplete(reads: Reader): Promise<boolean | string> {
  const page = await reads.home("bystander").catch((error: unknown) => String(error));
  return typeof page === "string" ? page : !page.degraded;
}

/**
 * A scenario causes a fault while the history goes on. Then the run settles, the returned function is called, and
 * everything is compared.
 */
export type Scenario = (run: FaultRun) => Promise<undefined | (() => unknown)>;

export const CLEAN = { lost: [], duplicated: [], resurrected: [], unexpected: [], unfulfilled: [], broken: [] };

/** Declares a test of one fault: after it everything is as the history says. */
export function faultTest(name: string, options: FaultRunOptions, scenario: Scenario): void {
  const seed = Number(process.env["FAULTS_SEED"] ?? options.seed ?? 1);
  test(`${name} (seed ${seed})`, async () => {
    await inFaultRun(options, seed, async (run) => {
      const found = await runScenario(run, scenario);
      recordRow(name, run, found);
      expect(found).toEqual(CLEAN);
    });
  });
}

const mutantCommand = (mutant: Mutant): readonly string[] => ["--import", "tsx", "test/faults/mutants/main.ts", mutant];

/** Declares a test of the oracle: the same scenario must have findings where the workers have a broken part. */
export function mutantTest(mutant: Mutant, options: FaultRunOptions, scenario: Scenario): void {
  const seed = Number(process.env["FAULTS_SEED"] ?? options.seed ?? 1);
  test(`the oracle notices workers without the step ${mutant} (seed ${seed})`, async () => {
    await inFaultRun({ ...options, mutant }, seed, async (run) => {
      // The test does not wait long for events that never come.
      run.streamsMs = 1_000;
      const found = await runScenario(run, scenario);
      recordRow(`without \`${mutant}\` (must not be 0)`, run, found);
      expect(found).not.toEqual(CLEAN);
    });
  });
}

async function inFaultRun(
  options: FaultRunOptions,
  seed: number,
  work: (run: FaultRun) => Promise<void>,
): Promise<void> {
  const run = await FaultRun.open(options, seed);
  try {
    await work(run);
  } catch (error) {
    throw run.stack.explain(error);
  } finally {
    await run.close();
  }
}

async function runScenario(run: FaultRun, scenario: Scenario): Promise<Found> {
  const check = await scenario(run);
  await run.settled();
  await check?.();
  let found = await run.findings();
  const noneResurrected = async () => {
    found = await run.findings();
    return found.resurrected.length === 0 || found.resurrected.join();
  };
  if (run.options.zombies === true)
    await eventually(noneResurrected, "zombies are done", ZOMBIE_MS).catch(() => undefined);
  return found;
}
