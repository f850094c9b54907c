import { readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Script } from "../../src/platform/redis/scripts.js";
import { script } from "../../src/state/scripts.redis.js";

/** The Lua scripts of the service, as their files are found. */
export const LUA_FILES: readonly string[] = readdirSync("src", { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".lua"))
  .map((file) => join("src", file))
  .sort();

const SCRIPTS = new Map(
  LUA_FILES.map((file) => [basename(file, ".lua"), script(basename(file, ".lua"), pathToFileURL(file).href)] as const),
);

/** The script of that name. */
export function lua(name: string): Script {
  const found = SCRIPTS.get(name);
  if (found === undefined) throw new Error(`no script ${name} in src`);
  return found;
}
