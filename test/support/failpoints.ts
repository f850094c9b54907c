import { FAILPOINTS, type Failpoint, type hookFailpoints } from "../../src/kernel/failpoints.js";

const ACTIONS = ["kill", "throw", "hang"] as const;
type Action = (typeof ACTIONS)[number];

interface Armed {
  readonly action: Action;
  readonly match: string;
  readonly probability: number;
}

/** The variable that `support/entry` reads; see `failpointsOf` for its form. */
export const FAILPOINTS_VARIABLE = "AVION_TEST_FAILPOINTS";

/**
 * The hook that makes a process die, throw or hang at these points. Format: `name=action[@part][%probability]`,
 * separated by commas. A point with a part is hit by messages that contain it.
 */
export function failpointsOf(text: string): NonNullable<Parameters<typeof hookFailpoints>[0]> {
  const armed = new Map(text.split(",").map(parse));
  return async (name, about) => {
    const point = armed.get(name);
    if (!point) return;
    const isHit = (one: string | Uint8Array): boolean =>
      Buffer.from(one).includes(point.match) && Math.random() < point.probability;
    if (!(about.length === 0 ? [""] : about).some(isHit)) return;
    if (point.action === "kill") process.kill(process.pid, "SIGKILL");
    if (point.action === "throw") throw new Error(`failpoint ${name}`);
    await new Promise(() => undefined);
  };
}

function parse(part: string): [Failpoint, Armed] {
  const [, name = "", action = "", match = "", probability = "1"] =
    /^([a-z-]+)=([a-z]+)(?:@([^%]*))?(?:%([\d.]+))?$/.exec(part.trim()) ?? [];
  const point = FAILPOINTS.find((one) => one === name);
  const done = ACTIONS.find((one) => one === action);
  if (point === undefined || done === undefined)
    throw new Error(`"${part}" is not name=action of ${FAILPOINTS.join(", ")} and ${ACTIONS.join(", ")}`);
  return [point, { action: done, match, probability: Number(probability) }];
}
