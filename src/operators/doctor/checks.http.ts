import { printableAddress } from "../../kernel/urls.js";
import { fetchKeySet } from "../../platform/http/key-set.js";
import { type Check, checked } from "./doctor.js";

const ADVICE = "start the server of the keys, or set TIMELINE_JWT_JWKS_URL to where it is: no token is accepted before";

/** The reason is in the cause: the error itself says that fetching failed. */
const reasonOf = (error: unknown): unknown => (error instanceof Error && error.cause) || error;

/** Checks that the keys of access tokens can be fetched as the gateway fetches them. */
export const keyChecks = (url: string): Check[] => [
  checked(`keys ${printableAddress(url)}`, ADVICE, async (server) => {
    const { size } = await fetchKeySet(url).catch((error) => Promise.reject(reasonOf(error)));
    return [server.ok(`${size} ${size === 1 ? "key" : "keys"}`)];
  }),
];
