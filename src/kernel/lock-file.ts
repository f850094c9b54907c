import { randomBytes } from "node:crypto";
import { readlinkSync } from "node:fs";
import { link, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { identify, isAlive, type ProcessIdentity } from "./processes.js";
import { SECOND } from "./time.js";

type LockAttempt =
  | { readonly taken: true; release(): Promise<void> }
  | { readonly taken: false; readonly holder: ProcessIdentity };

type Holder = ProcessIdentity & { readonly namespace: string };

// A process in another container or on another machine cannot check whether the holder is alive. It checks when the file was
// last touched.
const TOUCHED_EVERY_MS = 5 * SECOND;
const HELD_AFTER_TOUCH_MS = 30 * SECOND;

/**
 * Takes over the lock of a dead process, which is named by pid and start time, and that of a holder in another container
 * or on another machine 30 s after it last touched the file.
 */
export async function tryLockFile(file: string): Promise<LockAttempt> {
  const owner = JSON.stringify({ ...(await identify(process.pid)), namespace: processNamespace(), nonce: nonce() });
  while (!(await take(file, owner))) {
    const content = await read(file);
    if (content === undefined) continue;
    const holder = parse(content);
    if (holder && (await isHeld(file, holder))) return { taken: false, holder };
    await setAside(file, content);
  }
  const touching = setInterval(() => void touch(file), TOUCHED_EVERY_MS);
  touching.unref();
  return {
    taken: true,
    release: async () => {
      clearInterval(touching);
      if ((await read(file)) === owner) await rm(file, { force: true });
    },
  };
}

async function isHeld(file: string, holder: Holder): Promise<boolean> {
  if (holder.namespace === processNamespace()) return isAlive(holder);
  const stats = await stat(file).catch(() => undefined);
  return stats !== undefined && Date.now() - stats.mtimeMs < HELD_AFTER_TOUCH_MS;
}

function processNamespace(): string {
  try {
    return `${hostname()} ${readlinkSync("/proc/self/ns/pid")}`;
  } catch {
    return hostname();
  }
}

async function touch(file: string): Promise<void> {
  const now = new Date();
  await utimes(file, now, now).catch(() => undefined);
}

async function take(file: string, owner: string): Promise<boolean> {
  const draft = `${file}.${nonce()}`;
  await writeFile(draft, owner, { flag: "wx" });
  try {
    await link(draft, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
}

/** Of two processes that find the same dead holder, the slower must not remove the lock of the quicker. */
async function setAside(file: string, deadHolder: string): Promise<void> {
  const aside = `${file}.${nonce()}`;
  try {
    await rename(file, aside);
  } catch {
    return;
  }
  if ((await read(aside)) !== deadHolder) await link(aside, file).catch(() => undefined);
  await rm(aside, { force: true });
}

const nonce = (): string => randomBytes(6).toString("hex");

async function read(file: string): Promise<string | undefined> {
  return readFile(file, "utf8").catch(() => undefined);
}

function parse(content: string): Holder | undefined {
  try {
    return JSON.parse(content) as Holder;
  } catch {
    return undefined;
  }
}
