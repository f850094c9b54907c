import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { temporaryFolder } from "./brokers.js";

export const CLIENT = join(process.cwd(), "clients/typescript");

/** The examples of its README, by their headings. */
export const clientExamples = (): ReadonlyMap<string, string> =>
  new Map(
    readFileSync(join(CLIENT, "README.md"), "utf8")
      .split(/^## /m)
      .flatMap((section) => {
        const [, code] = /^```js\n([\s\S]*?)^```$/m.exec(section) ?? [];
        return code === undefined ? [] : [[section.slice(0, section.indexOf("\n")), code] as const];
      }),
  );

/** Makes a folder of a program that has the client installed as a link, and nothing else. */
export async function consumerFolder(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await temporaryFolder("client");
  mkdirSync(join(folder, "node_modules/@avion"), { recursive: true });
  symlinkSync(CLIENT, join(folder, "node_modules/@avion/timeline-client"));
  for (const [name, text] of Object.entries({ "package.json": '{ "type": "module" }', ...files }))
    writeFileSync(join(folder, name), text);
  return folder;
}

export const run = promisify(execFile);
