import { readFileSync } from "node:fs";

const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  version: string;
};

export const VERSION = manifest.version;

/** Every log line of a process that runs roles has these fields. */
export const SERVICE_FIELDS = { service: "avion-timeline", version: VERSION } as const;
