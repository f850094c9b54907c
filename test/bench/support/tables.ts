const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Three digits, large numbers as in "1.2M". */
export const short = (value: number): string => (Math.abs(value) < 1_000 ? plain(value) : compact.format(value));

/** Three digits, more before the point. */
export function plain(value: number): string {
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return Math.abs(value) < 1e-3 && value !== 0 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

/** Of bytes, such as "1.4 TB". */
export function sized(bytes: number): string {
  const [unit, by] = bytes >= 1e15 ? ["PB", 1e15] : bytes >= 1e12 ? ["TB", 1e12] : ["GB", 1e9];
  return `${plain(bytes / by)} ${unit}`;
}

export const tableOf = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
