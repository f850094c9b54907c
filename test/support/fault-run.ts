import { appendFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import type { Mutant } from "../faults/mutants/mutants.js";
import { brokenLaws, dropOf, Witness } from "./conservation.js";
import { eventually } from "./eventually.js";
import { PEOPLE, READERS, Story, type StoryOptions } from "./history.js";
import { TcpProxy } from "./proxy.js";
import { duplicatedAndShuffled, type Random, seeded } from "./random.js";
import { openReader, type Reader } from "./reader.js";
import type { Service } from "./service.js";
import { type EventStream, openEvents } from "./sse.js";
import { type Stack, startStack } from "./stack.js";
import { Supervisor } from "./supervisor.js";
import type { TimelineEvent } from "./timeline-events.js";
import { type Case, type Findings, missedOnStreams, verdictOn } from "./verdict.js";

/** Differences from the usual scenario: a front that is left alone, and one process that writes. */
export type ArenaOptions = StoryOptions & {
  /** The same history again: the same seed. FAULTS_SEED wins. */
  readonly seed?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** AVION_TEST_FAILPOINTS of the workers. */
  readonly failpoints?: string;
  /** The workers have a broken part. */
  readonly mutant?: Mutant;
  /** After so many deaths the workers run unharmed. */
  readonly deathsMax?: number;
  readonly workers?: number;
  /** AVION_TEST_FAILPOINTS of bridges of their own, one process each; without them the front bridges, unharmed. */
  readonly bridges?: readonly string[];
  /** A worker may go on with what others have done since: it needs a moment to take out again what it has put back. */
  readonly zombies?: boolean;
  /** Events are told doubled and in any order. */
  readonly shuffled?: boolean;
};

/** The usual environment: what was in the hands of a dead process is handed out as soon as may be; chunks are small. */
const ENV = {
  TIMELINE_ACK_WAIT_MS: "3500",
  TIMELINE_RETRY_BASE_MS: "50",
  TIMELINE_FANOUT_CHUNK_SIZE: "8",
};
const LISTENERS = [READERS[0], READERS[7]] as string[];
const SETTLING_MS = 90_000;
/** Longer than a message that has met an outage waits for its next try. */
const ZOMBIE_MS = 8_000;
/** A registration that Redis has lost is found out, and the stream told, within this time. */
const LISTENING_MS = 25_000;

/** Faults found in the end, and messages acked but not applied at a look. */
type Found = Findings & { readonly broken: readonly string[] };

/** Everything a fault happens in. */
export class Arena {
  readonly told: TimelineEvent[] = [];
  readonly poison: string[] = [];
  /** Messages that were acked but not applied at one of the looks. */
  readonly broken: string[] = [];
  readonly heard = new Map<string, EventStream>();
  readonly story: Story;
  readonly #witness: Witness;
  /** Those that run, or were killed last: a scenario may kill more than once. */
  #redisServer: Broker;
  #natsServer: Broker;
  #toldBefore = 0;
  #healedAt = 0;
  recoveredMs = 0;
  listeningMs = LISTENING_MS;

  readonly stack: Stack;
  readonly supervisor: Supervisor;
  readonly redisLink: TcpProxy;
  readonly natsLink: TcpProxy;

  private constructor(
    readonly options: ArenaOptions,
    readonly random: Random,
    { stack, redisLink, natsLink }: Pick<Arena, "stack" | "redisLink" | "natsLink">,
  ) {
    this.stack = stack;
    this.#redisServer = stack.redisServer;
    this.#natsServer = stack.natsServer;
    this.supervisor = new Supervisor(stack);
    this.redisLink = redisLink;
    this.natsLink = natsLink;
    this.story = new Story(random, stack.world, options);
    this.#witness = new Witness(stack.streams.connection);
  }

  front!: Service;
  reads!: Reader;

  static async open(options: ArenaOptions, seed: number): Promise<Arena> {
    const stack = await startStack({ service: false, env: { ...ENV, ...options.env } });
    const redisLink = await TcpProxy.open(stack.redisServer.port);
    const natsLink = await TcpProxy.open(stack.natsServer.port);
    stack.defer(() => redisLink.close());
    stack.defer(() => natsLink.close());
    const arena = new Arena(options, seeded(seed), { stack, redisLink, natsLink });
    try {
      await arena.#begin();
      return arena;
    } catch (error) {
      await arena.close();
      throw error;
    }
  }

  /** Addresses of the proxies, for processes whose links are to fail. */
  get linked(): Readonly<Record<string, string>> {
    return { REDIS_URL: this.redisLink.url("redis"), NATS_URL: this.natsLink.url("nats") };
  }

  /** Starts one more supervised writer. */
  startWriter(failpoints: string | undefined = this.options.failpoints): Promise<Service> {
    const { deathsMax, mutant } = this.options;
    const post = { roles: "fanout", env: this.linked, failpoints, command: mutant && mutantCommand(mutant) };
    return this.supervisor.start(deathsMax === undefined ? post : { ...post, deathsMax });
  }

  /** Starts one more supervised bridge; "" arms nothing. */
  startBridge(failpoints: string, deathsMax: number): Promise<Service> {
    return this.supervisor.start({ roles: "bridge", env: {}, deathsMax, ...(failpoints === "" ? {} : { failpoints }) });
  }

  /** Lets so many steps of the story happen, and publishes them. */
  async publishSteps(steps: number): Promise<void> {
    await this.publish(...this.story.next(steps));
  }

  /** Publishes events and remembers them. */
  async publish(...events: readonly TimelineEvent[]): Promise<void> {
    this.told.push(...events);
    await this.stack.publish(...(this.options.shuffled ? duplicatedAndShuffled(this.random, events) : events));
  }

  /** Lets so many steps happen that Redis Pub/Sub may carry to nobody. */
  async publishUnheard(steps: number): Promise<void> {
    const events = this.story.next(steps);
    this.told.push(...events);
    for (const { channel, payload } of events) await this.stack.redis.publish(channel, JSON.stringify(payload));
  }

  /** Lets so many steps happen without telling anybody. */
  changeSilently(steps: number): void {
    this.told.push(...this.story.next(steps));
  }

  /** Puts a message into the log that is no event; it must become a dead letter. */
  async publishInvalid(body: string): Promise<void> {
    this.poison.push(body);
    await this.stack.streams.connection.jetstream().publish("drops.created", body);
  }

  /** Says that from now on something works again: recovery is measured from here. */
  healed(): void {
    this.#healedAt = Date.now();
  }

  /** Stops all writers for a moment and checks the conservation law. */
  async checkConservation(): Promise<void> {
    this.supervisor.signal("SIGSTOP");
    try {
      const { streams, redis } = this.stack;
      this.broken.push(...(await brokenLaws({ streams, redis, witness: this.#witness }, this.told)));
    } finally {
      this.supervisor.signal("SIGCONT");
    }
  }

  /** Waits until what was told so far is admitted and done. */
  async done(): Promise<void> {
    const { streams } = this.stack;
    await eventually(missingFrom(streams, this.told), "the log holds what was told", SETTLING_MS);
    await streams.settledWith(1, SETTLING_MS);
  }

  /** Waits until the log holds what was told, or what overtakes it, and nobody has anything left to do. */
  async settled(): Promise<void> {
    const from = Date.now();
    await this.done();
    await eventually(() => whole(this.reads), "pages are whole", SETTLING_MS);
    this.recoveredMs = Date.now() - Math.max(this.#healedAt || from, this.supervisor.lastDeathAt);
    await this.checkConservation();
    await this.#listened();
  }

  /** Reads every home, so that what has lost its floor is rebuilt. */
  async readAll(): Promise<void> {
    for (const user of PEOPLE) {
      const read = async () => !(await this.reads.home(user, { limit: 100 })).degraded;
      await eventually(read, `the home of ${user} is whole`);
    }
    await eventually(async () => !(await this.reads.local()).degraded, "local is whole");
    await eventually(async () => !(await this.reads.global()).degraded, "global is whole");
  }

  /** Faults found so far; to be asked once all is settled. */
  async findings(): Promise<Found> {
    return { ...(await verdictOn(this.#case())), broken: [...new Set(this.broken)] };
  }

  async killRedis(): Promise<() => Promise<void>> {
    const { dir, port } = this.#redisServer;
    await killed(this.#redisServer);
    return async () => {
      const again = await startRedis({ dir, port, appendonly: true });
      this.stack.defer(() => again.stop());
      this.#redisServer = again;
    };
  }

  async killNats(): Promise<() => Promise<void>> {
    const { dir, port } = this.#natsServer;
    await killed(this.#natsServer);
    return async () => {
      const again = await startNats({ dir, port });
      this.stack.defer(() => again.stop());
      this.#natsServer = again;
      await this.stack.streams.answering();
    };
  }

  async close(): Promise<void> {
    for (const stream of this.heard.values()) stream.close();
    await this.supervisor.stopAll();
    await this.stack.stop();
  }

  async #begin(): Promise<void> {
    const { bridges = [], workers = 1, deathsMax = Number.POSITIVE_INFINITY } = this.options;
    this.front = await this.stack.start({ roles: bridges.length > 0 ? "api,gateway" : "bridge,api,gateway" });
    this.stack.defer(() => this.front.stop());
    this.reads = openReader(this.front.grpcAddress);
    this.stack.defer(() => this.reads.close());
    for (let number = 0; number < workers; number += 1) await this.startWriter();
    for (const failpoints of bridges) await this.startBridge(failpoints, deathsMax);
    await this.readAll();
    const prologue = this.story.prologue();
    this.told.push(...prologue);
    await this.stack.publish(...prologue);
    await this.stack.streams.settledWith(prologue.length, SETTLING_MS);
    this.#toldBefore = this.told.length;
    for (const user of LISTENERS) this.heard.set(user, await openEvents(this.front.httpUrl, user));
  }

  #case(): Case {
    const { streams, redis } = this.stack;
    const { told, poison, heard, reads } = this;
    return { streams, redis, witness: this.#witness, told, poison, heard, reads, toldBefore: this.#toldBefore };
  }

  /** A notification may still be on its way after everything is done. */
  async #listened(): Promise<void> {
    const givenUp = new Set((await this.stack.streams.all("DLQ")).flatMap((letter) => dropOf(letter) ?? []));
    const fact = () => missedOnStreams(this.#case(), givenUp).length === 0;
    await eventually(fact, "the streams have said all", this.listeningMs).catch(() => undefined);
  }
}

async function killed(server: Broker): Promise<void> {
  server.kill("SIGKILL");
  await server.exited;
}

/** A bystander's page is whole once nothing that Redis may have lost is being applied again. */
async function whole(reads: Reader): Promise<boolean | string> {
  const page = await reads.home("bystander").catch((error: unknown) => String(error));
  return typeof page === "string" ? page : !page.degraded;
}

/** The question whether the log holds what was told; answers with what is missing. */
function missingFrom(streams: Stack["streams"], told: readonly TimelineEvent[]): () => Promise<true | string> {
  let count = 0;
  let known: ReadonlySet<string> = new Set();
  return async () => {
    const now = await streams.count("DROPS").catch(() => 0);
    if (now !== count) known = new Set((await streams.all("DROPS")).flatMap(({ body }) => nameIn(String(body))));
    count = now;
    const missing = told.find((event) => {
      const { channel, payload } = event;
      const overtaken = channel === "drop_created" && known.has(nameOf({ drop_id: payload.drop_id }));
      return !overtaken && !known.has(nameOf(payload)) && !isSuperseded(told, event);
    });
    return missing === undefined || `${missing.channel} ${JSON.stringify(missing.payload)} is not in the log`;
  };
}

/** Nothing for what a test put there to be given up. */
function nameIn(body: string): string[] {
  try {
    return [nameOf(JSON.parse(body) as Record<string, unknown>)];
  } catch {
    return [];
  }
}

/** A payload's event, whichever producer spelled it. */
function nameOf(payload: Partial<Record<string, unknown>>): string {
  const { created_at, drop_id, follower_id, following_id, version } = payload;
  if (drop_id === undefined) return JSON.stringify(["edge", follower_id, following_id, version]);
  return JSON.stringify([created_at === undefined ? "dead" : "born", drop_id]);
}

/** True where a newer version of the same edge was told: upstreams name the newest only. */
function isSuperseded(told: readonly TimelineEvent[], { payload }: TimelineEvent): boolean {
  if (!("version" in payload)) return false;
  return told.some(({ payload: other }) => {
    const same = "version" in other && other.follower_id === payload.follower_id;
    return same && other.following_id === payload.following_id && other.version > payload.version;
  });
}

/** A fault while the story goes on. Then the arena settles, the function returned is run, and all is judged. */
export type Scenario = (arena: Arena) => Promise<undefined | (() => unknown)>;

const CLEAN = { lost: [], duplicated: [], resurrected: [], unexpected: [], unfulfilled: [], broken: [] };

/** A test of one fault: after it everything is as the history says. */
export function faultTest(name: string, options: ArenaOptions, scenario: Scenario): void {
  const seed = Number(process.env["FAULTS_SEED"] ?? options.seed ?? 1);
  test(`${name} (seed ${seed})`, async () => {
    await inArena(options, seed, async (arena) => {
      const found = await runScenario(arena, scenario);
      note(name, arena, found);
      expect(found).toEqual(CLEAN);
    });
  });
}

const mutantCommand = (mutant: Mutant): readonly string[] => ["--import", "tsx", "test/faults/mutants/main.ts", mutant];

/** A test of the oracle: where the workers have a broken part the same scenario must not come out clean. */
export function mutantTest(mutant: Mutant, options: ArenaOptions, scenario: Scenario): void {
  const seed = Number(process.env["FAULTS_SEED"] ?? options.seed ?? 1);
  test(`the oracle notices workers without the step ${mutant} (seed ${seed})`, async () => {
    await inArena({ ...options, mutant }, seed, async (arena) => {
      // Events that never come are not waited for.
      arena.listeningMs = 1_000;
      const found = await runScenario(arena, scenario);
      note(`without \`${mutant}\` (must not be 0)`, arena, found);
      expect(found).not.toEqual(CLEAN);
    });
  });
}

async function inArena(options: ArenaOptions, seed: number, work: (arena: Arena) => Promise<void>): Promise<void> {
  const arena = await Arena.open(options, seed);
  try {
    await work(arena);
  } catch (error) {
    throw arena.stack.explain(error);
  } finally {
    await arena.close();
  }
}

async function runScenario(arena: Arena, scenario: Scenario): Promise<Found> {
  const check = await scenario(arena);
  await arena.settled();
  await check?.();
  let found = await arena.findings();
  const late = async () => {
    found = await arena.findings();
    return found.resurrected.length === 0 || found.resurrected.join();
  };
  if (arena.options.zombies === true) await eventually(late, "zombies are done", ZOMBIE_MS).catch(() => undefined);
  return found;
}

/** A row of the table that is printed at the end. */
function note(fault: string, arena: Arena, found: Found): void {
  const file = process.env["FAULTS_ROWS"];
  if (file === undefined) return;
  const counts = Object.fromEntries(Object.entries(found).map(([name, all]) => [name, all.length]));
  const row = {
    fault,
    events: arena.told.length,
    deaths: arena.supervisor.deaths,
    recoveredMs: arena.recoveredMs,
    ...counts,
  };
  appendFileSync(file, `${JSON.stringify(row)}\n`);
}
