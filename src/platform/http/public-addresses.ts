import { isIP } from "node:net";
import ipaddr from "ipaddr.js";

/** Azure serves metadata to its virtual machines there, though the address is registered as a public one. */
const METADATA: ReadonlySet<string> = new Set(["168.63.129.16"]);

/** All other IPv6 addresses are of one network, carry an IPv4 address, or are not assigned (RFC 4291). */
const GLOBAL_UNICAST: [ipaddr.IPv6, number] = [ipaddr.IPv6.parse("2000::"), 3];

/** Tells whether an IP address belongs to a host of the internet. An IPv6 address that carries an IPv4 address does not. */
export function isPublicAddress(address: string): boolean {
  if (isIP(address) === 0 || address.includes("%")) return false;
  const parsed = ipaddr.parse(address);
  if (parsed.range() !== "unicast") return false;
  return parsed instanceof ipaddr.IPv6 ? parsed.match(GLOBAL_UNICAST) : !METADATA.has(parsed.toString());
}
