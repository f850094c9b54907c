import { readFileSync } from "node:fs";

const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  version: string;
};

export const VERSION = manifest.version;

/** Every log line of a process that runs roles has these fields. */
export const SERVICE_FIELDS = { service: "avion-timeline", version: VERSION } as const;

/** Returns "0.2" for "0.2.1": versions of one release use the same schema. */
export const releaseOf = (version: string): string => version.split(".", 2).join(".");

/** Returns "0.3" for "0.2.1". */
export function releaseAfter(version: string): string {
  const [major, minor] = version.split(".");
  return `${major}.${Number(minor) + 1}`;
}
