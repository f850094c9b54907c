export interface Finding {
  readonly what: string;
  readonly state: "ok" | "warning" | "fault";
  readonly says: string;
  readonly advice?: string | undefined;
}

/** Never rejects, and ends in bounded time. */
export type Check = () => Promise<readonly Finding[]>;

/** Makes findings about one server or setting. */
export type About = ReturnType<typeof about>;

export const about = (what: string) => ({
  ok: (says: string): Finding => ({ what, state: "ok", says }),
  warning: (says: string, advice: string): Finding => ({ what, state: "warning", says, advice }),
  fault: (says: string, advice: string): Finding => ({ what, state: "fault", says, advice }),
});

/** Turns an error of `check` into a fault with `advice`. */
export function checked(
  what: string,
  advice: string | ((error: unknown) => string),
  check: (about: About) => Promise<readonly Finding[]>,
): Check {
  const server = about(what);
  return async () => {
    try {
      return await check(server);
    } catch (error) {
      const says = error instanceof Error ? error.message : String(error);
      return [server.fault(says, typeof advice === "string" ? advice : advice(error))];
    }
  };
}

/** Compares dotted numbers; a suffix, as of a release candidate, does not make a version older. */
export const isOlder = (version: string, than: string): boolean =>
  version.localeCompare(than, "en", { numeric: true }) < 0;

/** An older version than `oldest` is a fault. */
export function versionFinding(server: About, version: string, oldest: string, why = ""): Finding {
  const says = `version ${version}`;
  return isOlder(version, oldest) ? server.fault(says, `use ${oldest} or newer${why}`) : server.ok(says);
}

const OLDEST_NODE = "20.19";

export function nodeCheck(serviceVersion: string): Check {
  const { node } = process.versions;
  const program = about(`avion-timeline ${serviceVersion}`);
  const says = `on Node ${node}`;
  return async () => [
    isOlder(node, OLDEST_NODE) ? program.fault(says, `use Node ${OLDEST_NODE} or newer`) : program.ok(says),
  ];
}

/** Runs all checks concurrently; the findings are in the order of the checks. */
export async function examine(checks: readonly Check[]): Promise<Finding[]> {
  return (await Promise.all(checks.map((check) => check()))).flat();
}

const SIGNS = { ok: "✓", warning: "!", fault: "✗" } as const;

export function findingsAsText(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map(({ what }) => what.length));
  return findings
    .map(({ what, state, says, advice }) => {
      const line = `${SIGNS[state]} ${what.padEnd(width)}  ${says}`;
      return advice === undefined || state === "ok" ? line : `${line}\n  ${" ".repeat(width)}  → ${advice}`;
    })
    .join("\n");
}
