/** Places where a test makes a process die, throw or hang (TIMELINE_FAILPOINTS); unarmed, they do nothing. */
const FAILPOINTS = [
  "bridge-received",
  "bridge-admitted",
  "handle",
  "write",
  "written",
  "checked",
  "notified",
  "handled",
  "acked",
  "dead-letter",
  "dead-lettered",
  "crossing",
  "rebuild-marked",
  "rebuild-read",
  "redriven",
  "outbox-claimed",
  "outbox-published",
  "outbox-marked",
  "outbox-dead-lettered",
  "analysed",
  "analysis-stored",
  "analysis-cached",
  "analysis-published",
  "analysis-failed",
  "rewarded",
  "reward-published",
  "close",
] as const;
export type Failpoint = (typeof FAILPOINTS)[number];

const ACTIONS = ["kill", "throw", "hang"] as const;
type Action = (typeof ACTIONS)[number];

interface Armed {
  readonly action: Action;
  readonly match: string;
  readonly probability: number;
}

type Failpoints = ReadonlyMap<string, Armed>;

let armed: Failpoints = new Map();

/** Format: `name=action[@part][%probability]`, separated by commas. */
export function parseFailpoints(text: string): Failpoints {
  const names: readonly string[] = FAILPOINTS;
  const points = text.split(",").map((part) => {
    const match = /^([a-z-]+)=([a-z]+)(?:@([^%]*))?(?:%([\d.]+))?$/.exec(part.trim());
    const [, name = "", action = "", of = "", probability = "1"] = match ?? [];
    if (!names.includes(name) || !(ACTIONS as readonly string[]).includes(action)) {
      throw new Error(`"${part}" is not name=action of ${names.join(", ")} and ${ACTIONS.join(", ")}`);
    }
    return [name, { action: action as Action, match: of, probability: Number(probability) }] as const;
  });
  return new Map(points);
}

export function armFailpoints(points: Failpoints): void {
  armed = points;
}

/** `about` are the messages handled, compared with the point's `match`. */
export async function failpoint(name: Failpoint, ...about: readonly (string | Uint8Array)[]): Promise<void> {
  const point = armed.size === 0 ? undefined : armed.get(name);
  if (!point) return;
  const isHit = (one: string | Uint8Array): boolean =>
    Buffer.from(one).includes(point.match) && Math.random() < point.probability;
  if (!(about.length === 0 ? [""] : about).some(isHit)) return;
  if (point.action === "kill") process.kill(process.pid, "SIGKILL");
  if (point.action === "throw") throw new Error(`failpoint ${name}`);
  if (point.action === "kill" || point.action === "hang") await new Promise(() => undefined);
}
