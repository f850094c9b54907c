import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** Python has httpx-sse. */
export const hasHttpx = spawnSync("python3", ["-c", "import httpx_sse"], { stdio: "ignore" }).status === 0;

/** The events a client heard, in order. */
export interface HttpxClient {
  readonly drops: readonly string[];
  readonly resets: readonly unknown[];
  isOpen(): boolean;
  close(): Promise<void>;
}

/** Listens with httpx-sse, in a process of its own. */
export function listenWithHttpx(url: string, token: string): HttpxClient {
  const child: ChildProcess = spawn("python3", ["test/support/httpx-client.py", url, token], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [drops, resets]: [string[], unknown[]] = [[], []];
  let open = false;
  createInterface({ input: child.stdout as NodeJS.ReadableStream }).on("line", (line) => {
    const { event, data } = JSON.parse(line) as { event: string; data?: { drop_id?: string } };
    if (event === "open" || event === "closed") open = event === "open";
    if (event === "new_drop") drops.push(String(data?.drop_id));
    if (event === "reset") resets.push(data);
  });
  return {
    drops,
    resets,
    isOpen: () => open,
    close: async () => {
      if (child.exitCode !== null) return;
      const ended = once(child, "exit");
      child.kill();
      await ended;
    },
  };
}
