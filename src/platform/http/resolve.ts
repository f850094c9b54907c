import { Resolver } from "node:dns/promises";
import { SECOND } from "../../kernel/time.js";

/** Resolves to the addresses of a host, which may be none. Rejects if name servers give no answer. */
export type Resolve = (host: string, signal: AbortSignal) => Promise<readonly string[]>;

const TIMEOUT_MS = 2 * SECOND;
const TRIES = 2;
const WITHOUT_ADDRESS: ReadonlySet<unknown> = new Set(["ENOTFOUND", "ENODATA", "EBADNAME"]);

/**
 * Asks name servers (unset: those of the system) directly. The resolver of the system has four threads in a process:
 * slow names of others would hold up those of our own servers. It would also complete a name with the search domains of
 * this network.
 */
export const createResolve =
  (servers?: readonly string[]): Resolve =>
  async (host, signal) => {
    const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES });
    if (servers) resolver.setServers(servers);
    const cancel = (): void => resolver.cancel();
    signal.addEventListener("abort", cancel, { once: true });
    const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    signal.removeEventListener("abort", cancel);
    const addresses = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
    const failures = answers.flatMap((answer): unknown[] => (answer.status === "rejected" ? [answer.reason] : []));
    const failure = failures.find((reason) => !WITHOUT_ADDRESS.has((reason as NodeJS.ErrnoException).code));
    if (addresses.length === 0 && failure !== undefined) throw failure;
    return addresses;
  };
