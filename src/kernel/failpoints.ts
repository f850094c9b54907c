/** Steps at which the tests' entry point can stop a process. The product itself never does. */
export const FAILPOINTS = [
  "bridge-received",
  "bridge-admitted",
  "handle",
  "write",
  "written",
  "checked",
  "notified",
  "handled",
  "acked",
  "dead-letter",
  "dead-lettered",
  "crossing",
  "rebuild-marked",
  "rebuild-read",
  "redriven",
  "outbox-claimed",
  "outbox-published",
  "outbox-marked",
  "outbox-dead-lettered",
  "analysed",
  "analysis-stored",
  "analysis-cached",
  "analysis-published",
  "analysis-failed",
  "rewarded",
  "reward-published",
  "notification-written",
  "notification-deferred",
  "notification-published",
  "erasure-ended",
  "erasure-dropped",
  "erasure-step",
  "erasure-reported",
  "posts-forgetting",
  "forgetting",
  "fill-window",
  "timelines-streams-ended",
  "timelines-applied",
  "timelines-fenced",
  "timelines-walking",
  "timelines-walked",
  "timelines-forgotten",
  "close",
] as const;
export type Failpoint = (typeof FAILPOINTS)[number];

type Hook = (name: Failpoint, about: readonly (string | Uint8Array)[]) => Promise<void>;

let hook: Hook | undefined;

/** Only tests call this. Without a hook a failpoint does nothing. */
export function hookFailpoints(next: Hook | undefined): void {
  hook = next;
}

/** `about` are the messages that are being handled. */
export async function failpoint(name: Failpoint, ...about: readonly (string | Uint8Array)[]): Promise<void> {
  if (hook) await hook(name, about);
}
