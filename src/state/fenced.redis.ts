import pLimit from "p-limit";
import { allOf } from "../kernel/concurrency.js";
import { createLanes, type LaneName, type Lanes } from "../kernel/lanes.js";
import type { RedisClock } from "../platform/redis/clock.js";
import { COMMAND_TIMEOUT_MS } from "../platform/redis/connect.js";
import type { Script, Scripts } from "../platform/redis/scripts.js";
import { inSpan, SpanKind } from "../telemetry/spans.js";
import { byKey, callsOf, createKeyLists, type Group, type KeyList, singly } from "./key-lists.js";
import { KEYS_A_CALL } from "./keys.js";
import { observeLane } from "./observe.js";

type Argument = string | number;

interface KeysWrite {
  readonly script: Script;
  readonly prefix: string;
  /** Each is the rest of a key. */
  readonly tokens: readonly string[];
  readonly before: readonly Argument[];
}

interface GroupsWrite {
  readonly script: Script;
  readonly prefix: string;
  readonly before: readonly Argument[];
  readonly groups: readonly Group[];
  /** This marks a fan-out that others must not wait for. */
  readonly yields?: boolean;
  /** Returns the number of a reply that is none. */
  readonly numberOf?: (reply: unknown) => number;
}

/** The deadline is the command timeout, by the clock of the server written to. */
export interface Fenced {
  /** Resolves to the sum of the replies once all of them succeeded. Where one fails, the others have ended, as below. */
  many(write: KeysWrite): Promise<number>;
  /**
   * Resolves once each reply was a success. A call takes as many entries as reads can wait for. Where one fails, the
   * others have ended before it rejects: none is applied later than what its caller does next.
   */
  groups(write: GroupsWrite): Promise<number>;
  /** Pauses as the lane `yielding` does after a call that took `ms`: not at all while the other lane is idle. */
  yieldAfter(ms: number): Promise<void>;
  /** The keys must be in one slot. */
  one(script: Script, keys: readonly [string, ...string[]], args: readonly Argument[]): Promise<unknown>;
}

/** Calls of this size take the server up to 7 ms and 1 ms; reads wait meanwhile. */
const ENTRIES_A_CALL = { prompt: 1_000, yielding: 125 };
/** Calls under way in a lane of a server. It has the next one when it is done with the first; reads wait for all of them. */
const CALLS_UNDER_WAY = { prompt: 8, yielding: 2 };

/** A call that the client sends to another node of a cluster keeps its deadline. */
export function createFenced(scripts: Scripts, clock: RedisClock): Fenced {
  const { nodeOf, isCluster } = scripts;
  const lanes = createServerLanes();
  const keyLists = createKeyLists(scripts);
  const deadline = async (key: string): Promise<number> => (await clock.now(key)) + COMMAND_TIMEOUT_MS;
  const inScriptSpan = <T>({ name }: Script, work: () => Promise<T>): Promise<T> =>
    inSpan(`redis ${name}`, { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } }, work);
  return {
    many: (write) => inScriptSpan(write.script, () => many(write)),
    groups: (write) => inScriptSpan(write.script, () => groups(write)),
    yieldAfter: lanes.yieldAfter,
    one: async (script, keys, args) => scripts.run(script, keys, [await deadline(keys[0]), ...args]),
  };

  async function many({ script, prefix, tokens, before }: KeysWrite): Promise<number> {
    const keys = tokens.map((token) => prefix + token);
    const answers = await scripts.byNode(keys, KEYS_A_CALL, async (route, places) => {
      const packed = places.map((place) => tokens[place]).join(",");
      return scripts.run(script, route, [await deadline(route[0] ?? prefix), ...before, prefix, packed]);
    });
    return sum(answers.map(({ reply }) => reply));
  }

  async function groups({ script, prefix, before, groups: all, ...write }: GroupsWrite): Promise<number> {
    const { yields = false, numberOf = Number } = write;
    const name = yields ? "yielding" : "prompt";
    const merged = keyLists.merged(all);
    const nodes = keyLists.byNode(prefix, yields ? merged : byKey(merged));
    const send = (node: string, lists: readonly KeyList[]): Promise<unknown> =>
      lanes.of(node)[name].run(async () => {
        const first = prefix + (lists[0]?.keys.tokens[0] as string);
        const args = lists.flatMap(({ keys, items }) => [keys.packed, items.length, ...items.flat()]);
        return scripts.run(script, isCluster ? [first] : [], [await deadline(first), ...before, prefix, ...args]);
      });
    const sendWhole = async (node: string, lists: readonly KeyList[]): Promise<readonly unknown[]> => {
      const whole = scripts.servesOneSlotOnly() ? undefined : await scripts.unlessElsewhere(() => send(node, lists));
      if (whole !== undefined) return [whole];
      return allOf(singly(lists).map((one) => send(nodeOf(prefix + one.keys.packed), [one])));
    };
    const calls = [...nodes].flatMap(([node, lists]) => {
      // Calls of other writes come between those of a large one.
      const inLine = pLimit(CALLS_UNDER_WAY[name]);
      return callsOf(lists, ENTRIES_A_CALL[name]).map((some) => inLine(() => sendWhole(node, some)));
    });
    lanes.observe(name);
    const replies = (await allOf(calls).finally(() => lanes.observe(name))).flat();
    return sum(replies.map(numberOf));
  }
}

/** Each server has lanes of its own: one that does not answer holds up its own calls only. */
function createServerLanes() {
  const all = new Map<string, Lanes>();
  return {
    of(node: string): Lanes {
      const lanes = all.get(node) ?? createLanes(CALLS_UNDER_WAY);
      all.set(node, lanes);
      return lanes;
    },
    yieldAfter: async (ms: number) => void (await Promise.all([...all.values()].map((lanes) => lanes.yieldAfter(ms)))),
    observe: (name: LaneName) => observeLane(name, sum([...all.values()].map((lanes) => lanes[name].waiting))),
  };
}

const sum = (replies: readonly unknown[]): number => replies.reduce<number>((total, reply) => total + Number(reply), 0);
