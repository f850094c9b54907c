import type { Cluster, Redis } from "ioredis";

// All private behaviour of the client that we rely on, with the reasons in
// docs/decisions/0019-libraries.md. test/integration/wire.test.ts fails if a new version of the
// client has changed it.

/** A cluster's client sends again what failed as its connection closed; here it does so only if nothing was sent. */
export function failUnanswered(node: Redis): void {
  const fail = (): void => {
    for (let sent = node.commandQueue.shift(); sent; sent = node.commandQueue.shift())
      sent.command.reject(new Error("the connection was closed before the answer"));
  };
  node.on("connect", () => node.stream.prependOnceListener("close", fail));
}

/** The client asks a node for the slots over a connection of its own, and does not tell why that one failed. */
export function reportRefreshes(cluster: Cluster, node: Redis): void {
  const duplicate = node.duplicate.bind(node);
  node.duplicate = (override) => {
    const copy = duplicate(override);
    copy.on("error", (error) => cluster.emit("node error", error));
    addressNodes(copy);
    return copy;
  };
}

type Slots = readonly (readonly [
  from: number,
  to: number,
  ...nodes: (readonly [host: string | null, ...unknown[]])[],
])[];

/**
 * A node that does not know or tell an address (empty, "?", null with `unknown-endpoint`) means the one that was asked:
 * the client would leave it out.
 */
function addressNodes(asked: Redis): void {
  const cluster = asked.cluster.bind(asked) as (
    what: "SLOTS",
    answer: (error: Error | null, slots?: Slots) => void,
  ) => unknown;
  const { host } = asked.options;
  const addressed = (slots: Slots | undefined) =>
    slots?.map(([from, to, ...nodes]) => [
      ...[from, to],
      ...nodes.map(([named, ...rest]) => [named === "?" ? host : named || host, ...rest]),
    ]) as unknown as Slots | undefined;
  asked.cluster = ((what: "SLOTS", answer: (error: Error | null, slots?: Slots) => void) =>
    cluster(what, (error, slots) => answer(error, addressed(slots)))) as typeof asked.cluster;
}
