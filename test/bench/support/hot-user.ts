import { headers } from "nats";
import { SUBJECT_OF } from "../../../src/contracts/events.js";
import { COMPLETED_FANOUT } from "../../../src/contracts/subjects.js";
import { chunked } from "../../../src/kernel/concurrency.js";
import { createPublisher } from "../../../src/platform/nats/publish.js";
import { eventually } from "../../support/eventually.js";
import type { Servers } from "./bench.js";
import { dropIds } from "./homes.js";
import { measured, summarise } from "./measure.js";
import type { Row } from "./result.js";

/** One event of others each so many ms, however long those before take. */
const EVERY_MS = 10;
const A_MINUTE = 10_000;
const TARGET = 2;
/** Of each load: one pause of 60 ms, of a process or of the machine, delays more than one event in a hundred of a round. */
const ROUNDS = 3;
const PATIENCE_MS = 300_000;
const FIRST_DROP = 50_000_000;

export interface Crowd {
  /** They follow `star` at once. */
  readonly fans: readonly string[];
  readonly star: string;
  /** Each is followed by some of `others`, and then posts a drop. */
  readonly authors: readonly string[];
  readonly others: readonly string[];
  readonly processes: Readonly<Record<string, number>>;
}

/** Times in ms, from publishing an event to its ack or its completion. */
interface Times {
  readonly follows: number[];
  readonly drops: number[];
}

/**
 * Follows and drops of others: idle, beside one user who gains 10,000 followers a minute, beside one who gains very many
 * at once, and idle again.
 */
export async function besideHotUser(servers: Servers, crowd: Crowd): Promise<Row[]> {
  const { streams } = servers;
  const paced = openPaced(servers, crowd);
  const seconds = (crowd.others.length * EVERY_MS) / 1_000;
  const inAMinute = Math.round((A_MINUTE / 60) * seconds);
  const rounds = async (fans: readonly (readonly string[])[]): Promise<Times> => {
    const all: Times = { follows: [], drops: [] };
    for (const some of fans) {
      const { follows, drops } = await paced(some);
      all.follows.push(...follows);
      all.drops.push(...drops);
    }
    return all;
  };
  const idly = () => rounds(Array.from({ length: ROUNDS }, () => []));
  const beside = (fans: readonly (readonly string[])[]) =>
    measured({ processes: crowd.processes, units: fans.flat().length }, async () => {
      const times = await rounds(fans);
      const done = async () => (await streams.unfinished()) === 0;
      await eventually(done, "the hot user's follows are applied", PATIENCE_MS);
      return times;
    });
  await paced();
  const before = await idly();
  const steady = await beside(chunked(crowd.fans.slice(0, ROUNDS * inAMinute), inAMinute));
  const crush = crowd.fans.slice(ROUNDS * inAMinute);
  const burst = await beside([crush]);
  const idle = [before, await idly()];
  const name = (many: number, during: string): string => `beside ${many.toLocaleString("en")} ${during}`;
  return [
    ...rowsOf({ name: name(A_MINUTE, "a minute"), ...steady, idle, target: { atMost: TARGET } }),
    ...rowsOf({ name: name(crush.length, `in ${seconds} s`), ...burst, idle }),
  ];
}

interface Beside {
  readonly name: string;
  readonly result: Times;
  readonly cpu: Row["cpu"];
  readonly idle: readonly Times[];
  readonly target?: Row["target"];
}

function rowsOf({ name, result, cpu, idle, target }: Beside): Row[] {
  return (["follows", "drops"] as const).flatMap((kind) => {
    const own = summarise(result[kind]);
    const others = idle.map((times) => summarise(times[kind]));
    return (["p50", "p99"] as const).map((what) => {
      const peer = others.reduce((sum, one) => sum + one[what], 0) / others.length;
      return {
        name: `${kind} of others ${name}, ${what}`,
        ...{ value: own[what], unit: "ms", peer: { name: "idle", value: peer } },
        ...(what === "p99" ? { target } : { cpu }),
      };
    });
  });
}

function follow({ connection }: Servers["streams"], followers: readonly string[], author: string): void {
  for (const follower of followers) {
    const header = headers();
    header.set("Nats-Msg-Id", `user_followed:${follower}:${author}`);
    const body = JSON.stringify({ follower_id: follower, following_id: author, version: 1 });
    connection.publish(SUBJECT_OF.user_followed, body, { headers: header });
  }
}

/** Publishes a follow and a drop of others at fixed times, and beside them a share of the fans' follows. */
function openPaced(
  { streams }: Servers,
  { authors, others, star }: Crowd,
): (fans?: readonly string[]) => Promise<Times> {
  const { connection } = streams;
  const { publish } = createPublisher(connection);
  const acked = new Map<number, number>();
  const completed = new Map<string, number>();
  // Sequence in the stream: of a subject that an ack is sent to.
  connection.subscribe("$JS.ACK.DROPS.graph.>", {
    callback: (_, { subject }) => void acked.set(Number(subject.split(".")[5]), performance.now()),
  });
  connection.subscribe(COMPLETED_FANOUT, {
    callback: (_, message) => void completed.set(message.json<{ drop_id: string }>().drop_id, performance.now()),
  });
  let round = 0;
  return async (fans = []) => {
    round++;
    const share = Math.ceil(fans.length / others.length);
    const begun = { follows: new Map<number, number>(), drops: new Map<string, number>() };
    const work: Promise<void>[] = [];
    const started = performance.now();
    const oneFollow = async (follower: string, author: string): Promise<void> => {
      const at = performance.now();
      const body = Buffer.from(JSON.stringify({ follower_id: follower, following_id: author, version: round }));
      const { seq } = await publish({ subject: SUBJECT_OF.user_followed, id: `${round}:${follower}:${author}`, body });
      begun.follows.set(seq, at);
    };
    const oneDrop = async (drop_id: string, user_id: string): Promise<void> => {
      begun.drops.set(drop_id, performance.now());
      const body = Buffer.from(JSON.stringify({ drop_id, user_id, visibility: "followers", created_at: Date.now() }));
      await publish({ subject: SUBJECT_OF.drop_created, id: drop_id, body });
    };
    const drops = dropIds(others.length, FIRST_DROP + round * others.length);
    for (const [n, other] of others.entries()) {
      const author = authors[n % authors.length] as string;
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, started + n * EVERY_MS - performance.now())));
      follow(streams, fans.slice(n * share, (n + 1) * share), star);
      work.push(oneFollow(other, author), oneDrop(drops[n] as string, author));
    }
    await Promise.all(work);
    const left = (): number =>
      [...begun.follows.keys()].filter((seq) => !acked.has(seq)).length +
      [...begun.drops.keys()].filter((id) => !completed.has(id)).length;
    await eventually(() => left() === 0 || `${left()} are missing`, "events of others are done", PATIENCE_MS);
    return {
      follows: [...begun.follows].map(([seq, at]) => (acked.get(seq) as number) - at),
      drops: [...begun.drops].map(([id, at]) => (completed.get(id) as number) - at),
    };
  };
}
