import type { Variable } from "../../kernel/variables.js";

/**
 * Earlier versions had these settings, which are constants now, or gone. One that is still set stops the start by name.
 */
export const REMOVED: readonly string[] = [
  "TIMELINE_ANALYSIS_CONCURRENCY",
  "TIMELINE_AUDIT_PUBLICATIONS_DELAY_MS",
  "TIMELINE_AUDIT_PUBLICATIONS_PERCENT",
  "TIMELINE_AUDIT_PUBLICATIONS_RATE",
  "TIMELINE_AUDIT_USERS",
  "TIMELINE_FAILPOINTS",
  "TIMELINE_FANOUT_RECENT_DAYS",
  "TIMELINE_HOT_USER_RATE",
  "TIMELINE_READ_AHEAD_RATE",
  "TIMELINE_READ_DEADLINE_MAX_MS",
  "TIMELINE_REBUILD_CONCURRENCY",
  "TIMELINE_REBUILD_QUEUE",
  "TIMELINE_REWARD_MULTIPLIERS",
];

/** Settings that are constants now, or have left the prefix. They have no effect; the next version refuses them. */
const WITHOUT_EFFECT: readonly string[] = [
  "TIMELINE_CONSUMER_CONCURRENCY",
  "TIMELINE_FANOUT_CONCURRENCY",
  "TIMELINE_FANOUT_REST_RATE",
  "TIMELINE_JWT_JWKS_MAX_AGE_MS",
  "TIMELINE_LOG_FILL_RATE",
  "TIMELINE_NATS_SERVER",
  "TIMELINE_REDIS_SERVER",
];

/** Faults of names: unknown ones, those of removed settings, and both names of a renamed one. */
export function nameFaults(variables: readonly Variable[], env: NodeJS.ProcessEnv): string[] {
  const names = variables.map(({ name }) => name);
  const known = new Set([...names, ...variables.flatMap(formerNames), ...WITHOUT_EFFECT]);
  const unknown = Object.keys(env)
    .filter((name) => name.startsWith("TIMELINE_") && !known.has(name))
    .flatMap((name) => {
      // Compose files pass on an empty text for what is not set.
      if (REMOVED.includes(name)) return env[name] ? `${name}: is no longer a setting; remove it` : [];
      const near = names.find((candidate) => editDistance(candidate, name) <= 2);
      return `${name}: is not a variable of this service${near ? ` (did you mean ${near}?)` : ""}`;
    });
  const twice = variables
    .filter(({ name }) => env[name])
    .flatMap((variable) =>
      usedFormerNames(variable, env).map(
        (former) => `${variable.name}: excludes ${former}, its former name; remove ${former}`,
      ),
    );
  return [...unknown, ...twice];
}

/** Warns of former names in use, which are read for one version, and of settings without effect. */
export const nameWarnings = (variables: readonly Variable[], env: NodeJS.ProcessEnv): string[] => [
  ...variables.flatMap((variable) =>
    usedFormerNames(variable, env).map(
      (former) => `${former} is now ${variable.name}; the next version refuses the old name`,
    ),
  ),
  ...WITHOUT_EFFECT.filter((name) => env[name]).map(
    (name) => `${name} is no longer a setting and has no effect; the next version refuses it`,
  ),
];

const formerNames = ({ former = {} }: Variable): string[] =>
  typeof former === "string" ? [former] : Object.values(former);

export const usedFormerNames = (variable: Variable, env: NodeJS.ProcessEnv): string[] =>
  formerNames(variable).filter((name) => env[name]);

/** Returns the value under a former name; if there are several, an object of the values. Undefined: none is set. */
export function formerValue({ former = {} }: Variable, env: NodeJS.ProcessEnv): unknown {
  if (typeof former === "string") return env[former] || undefined;
  const given = Object.entries(former).filter(([, name]) => env[name]);
  return given.length === 0 ? undefined : Object.fromEntries(given.map(([part, name]) => [part, env[name]]));
}

/** The Levenshtein distance is found by the two-row algorithm of Wagner and Fischer (1974). */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min((row[j] as number) + 1, (next[j - 1] as number) + 1, swap));
    }
    row = next;
  }
  return row[b.length] as number;
}
