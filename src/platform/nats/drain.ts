import type { ConsumerMessages, Subscription } from "nats";

/**
 * Ends a pull without losing what is on its way. The client's own close drops
 * what arrives after it, and the server hands that out again only after
 * ack_wait; draining the subscription beneath, which it keeps to itself but
 * follows, takes in everything the server has sent.
 */
export async function drained(messages: ConsumerMessages): Promise<void> {
  const { sub } = messages as unknown as { readonly sub: Subscription };
  await sub.drain().catch(() => undefined);
  await messages.closed();
}
