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
  /** Ends of the keys, after the prefix. */
  readonly tokens: readonly string[];
  readonly before: readonly Argument[];
}

interface GroupsWrite {
  readonly script: Script;
  readonly prefix: string;
  readonly before: readonly Argument[];
  readonly groups: readonly Group[];
  /** True for a fan-out that other writes must not wait for. */
  readonly yields?: boolean;
  /** Returns the number to add for a reply that is not a number. */
  readonly numberOf?: (reply: unknown) => number;
}

/** Writes that no server applies after their deadline: the command timeout, by the clock of the server written to. */
export interface Fenced {
  /** Resolves to the sum of the replies once all of them succeeded. If one fails, the others have ended, as below. */
  many(write: KeysWrite): Promise<number>;
  /**
   * Resolves once each reply was a success. The size of a call bounds how long reads wait. If one call fails, the
   * others have ended before this rejects: none is applied later than what its caller does next.
   */
  groups(write: GroupsWrite): Promise<number>;
  /** Pauses as the lane `yielding` does after a call that took `ms`: not at all while the other lane is idle. */
  yieldAfter(ms: number): Promise<void>;
  /** Runs a script whose keys are in one slot. */
  one(script: Script, keys: readonly [string, ...string[]], args: readonly Argument[]): Promise<unknown>;
}

/** Maximum number of entries in a call. It takes the server up to 7 ms or 1 ms, while reads wait. */
const ENTRIES_A_CALL = { prompt: 1_000, yielding: 125 };
/**
 * Maximum number of calls under way in a lane of a server: the next one is there when the first is done. Reads wait for
 * all of them.
 */
const CALLS_UNDER_WAY = { prompt: 8, yielding: 2 };

/** Opens fenced writes. A call that the client sends to another node of a cluster keeps its deadline. */
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
    const answers = await scripts.byNode(keys, KEYS_A_CALL, async (route, indexes) => {
      const packed = indexes.map((index) => tokens[index]).join(",");
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
      return allOf(singly(lists).map((single) => send(nodeOf(prefix + single.keys.packed), [single])));
    };
    const calls = [...nodes].flatMap(([node, lists]) => {
      // Calls of other writes come between those of a large one.
      const inLine = pLimit(CALLS_UNDER_WAY[name]);
      return callsOf(lists, ENTRIES_A_CALL[name]).map((callLists) => inLine(() => sendWhole(node, callLists)));
    });
    lanes.observe(name);
    const replies = (await allOf(calls).finally(() => lanes.observe(name))).flat();
    return sum(replies.map(numberOf));
  }
}

/** Opens the lanes. Each server has its own: a server that does not answer delays only its own calls. */
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
