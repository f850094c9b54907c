/** What one check found. */
export interface Finding {
  readonly what: string;
  readonly state: "ok" | "warning" | "fault";
  /** What is there, or what is wrong. */
  readonly says: string;
  /** What to do about it. */
  readonly advice?: string | undefined;
}

/** Looks at one thing; must not throw, and must end in bounded time. */
export type Check = () => Promise<readonly Finding[]>;

/** Compares dotted versions; negative where `a` is older. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [a, b].map((text) => text.split(/[.-]/).map((part) => Number.parseInt(part, 10) || 0));
  for (let at = 0; at < 3; at++) {
    const difference = (left?.[at] ?? 0) - (right?.[at] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** Makes a check of one that may throw. */
export function checked(what: string, advice: string, look: () => Promise<readonly Finding[]>): Check {
  return async () => {
    try {
      return await look();
    } catch (error) {
      const says = error instanceof Error ? error.message : String(error);
      return [{ what, state: "fault", says, advice }];
    }
  };
}

/** Runs all checks at once; findings keep the order of the checks. */
export async function examine(checks: readonly Check[]): Promise<Finding[]> {
  return (await Promise.all(checks.map((check) => check()))).flat();
}

const SIGNS = { ok: "✓", warning: "!", fault: "✗" } as const;

/** The findings as lines for a person. */
export function report(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map(({ what }) => what.length));
  return findings
    .map(({ what, state, says, advice }) => {
      const line = `${SIGNS[state]} ${what.padEnd(width)}  ${says}`;
      return advice === undefined || state === "ok" ? line : `${line}\n  ${" ".repeat(width)}  → ${advice}`;
    })
    .join("\n");
}
