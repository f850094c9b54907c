import { randomUUID } from "node:crypto";
import type * as wire from "../../gen/avion/posts.js";
import { createBoundedQueue } from "../../kernel/concurrency.js";
import { AppError, codeOf, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { SingleFlight } from "../../kernel/sharing.js";
import { countdown, HOUR, MINUTE, pause, SECOND } from "../../kernel/time.js";
import { observePosts } from "../drops/observe.js";
import type { RemoteReads, StoredRemoteObject } from "../drops/remote-drops.sql.js";
import { readFetched } from "./fetched-documents.js";
import type { Claim, createFetchStore, HostBounds } from "./fetches.sql.js";

export interface Fetcher {
  /** Returns undefined for a URI that is never fetched. */
  hostOf(uri: string): string | undefined;
  fetch(
    uri: string,
  ): Promise<
    { readonly document: string; readonly maxAgeS: number } | { readonly fault: Fault; readonly detail: string }
  >;
}

export interface FetchDeps {
  readonly store: { readonly fetches: ReturnType<typeof createFetchStore>; readonly remote: Pick<RemoteReads, "get"> };
  readonly fetcher: Fetcher;
  readonly put: (request: wire.PutRemoteObjectRequest) => Promise<StoredRemoteObject>;
  readonly log: Logger;
}

/** The text names no address. The failure is remembered for `forMs`. The error of an outage asks callers to retry. */
interface Failure {
  readonly text: string;
  readonly forMs: number;
  readonly isOutage?: true;
}

const FAILURES = {
  url: { text: "only https on port 443, without a user, is fetched", forMs: HOUR },
  address: { text: "its server has no public address", forMs: 10 * MINUTE },
  unreachable: { text: "its server cannot be reached", forMs: MINUTE, isOutage: true },
  late: { text: "its server does not answer in time", forMs: MINUTE, isOutage: true },
  overload: { text: "its server does not answer now", forMs: MINUTE, isOutage: true },
  status: { text: "its server has no such object for us", forMs: 10 * MINUTE },
  redirects: { text: "its server redirects too often, nowhere, or to another server", forMs: 10 * MINUTE },
  encoding: { text: "the answer of its server is compressed", forMs: 10 * MINUTE },
  type: { text: "the answer of its server is not of a type of JSON", forMs: 10 * MINUTE },
  size: { text: "the answer of its server is too large", forMs: HOUR },
  json: { text: "the answer of its server is not a JSON object", forMs: 10 * MINUTE },
  id: { text: "the answer of its server has another id", forMs: 10 * MINUTE },
  unfit: { text: "the answer of its server is neither a drop nor an actor that may be stored", forMs: 10 * MINUTE },
} as const satisfies Readonly<Record<string, Failure>>;

type Fault = keyof typeof FAILURES;

/** A fetch takes 10 s at most; the rest is for storing the answer. */
const LEASE_MS = 15 * SECOND;
const WAIT_MS = LEASE_MS + 5 * SECOND;
const LOOK_MS = 100;
const AT_ONCE = 32;
const HOST_BOUNDS: HostBounds = { atOnce: 4, perMinute: 60 };

/**
 * Returns a function that fetches and stores a missing or expired object. Of all processes one fetches a URI at a time;
 * the others wait, and read what it stored. A failure is remembered for a while. @throws AppError `notfound`,
 * `unavailable` or `exhausted`
 */
export function createFetch(deps: FetchDeps): (uri: string) => Promise<StoredRemoteObject> {
  const { fetcher } = deps;
  const flights = new SingleFlight<StoredRemoteObject>();
  const queue = createBoundedQueue({ atOnce: AT_ONCE, waiting: 0, refusal: () => tooMany() });
  return async (uri) => {
    const host = fetcher.hostOf(uri);
    if (host === undefined) throw failed("url");
    return flights.run(uri, () => queue(() => whenClaimed(deps, uri, host)));
  };
}

const tooMany = (): AppError =>
  new AppError("exhausted", "uri: too many objects are fetched", { retryAfterMs: SECOND });

async function whenClaimed(deps: FetchDeps, uri: string, host: string): Promise<StoredRemoteObject> {
  const { store } = deps;
  const claim = { uri, holder: randomUUID() };
  const timeLeft = countdown(WAIT_MS);
  while (timeLeft() > 0) {
    const turn = await store.fetches.claim(claim, { host, leaseMs: LEASE_MS, bounds: HOST_BOUNDS });
    if (turn.state === "full") throw tooMany();
    if (turn.state === "failed") throw failed(turn.outcome, turn.leftMs);
    if (turn.state === "claimed") return fetchClaimed(deps, claim);
    await pause(LOOK_MS);
    const stored = await store.remote.get(uri);
    if (stored !== undefined && isCurrent(stored)) return stored;
  }
  throw failed("late");
}

/** A deleted object is never fetched again. */
const isCurrent = ({ expired, deleted_at }: StoredRemoteObject): boolean => !expired || deleted_at !== null;

async function fetchClaimed(deps: FetchDeps, claim: Claim): Promise<StoredRemoteObject> {
  const { fetches, remote } = deps.store;
  let [outcome, forMs] = ["failed", 0];
  try {
    // Another process may have stored the object between the last read and this claim.
    const before = await remote.get(claim.uri);
    if (before !== undefined && isCurrent(before)) {
      outcome = "stored";
      return before;
    }
    const answer = await fetchOnce(deps, claim);
    if ("fault" in answer) {
      [outcome, forMs] = [answer.fault, FAILURES[answer.fault].forMs];
      throw failed(answer.fault);
    }
    outcome = "fetched";
    return answer;
  } finally {
    observePosts.fetched(outcome);
    // If this fails, the claim ends with its lease.
    await fetches.finish(claim, outcome, forMs).catch(() => undefined);
  }
}

async function fetchOnce(deps: FetchDeps, claim: Claim): Promise<StoredRemoteObject | { readonly fault: Fault }> {
  const { fetcher, store, put, log } = deps;
  const { uri } = claim;
  const answer = await fetcher.fetch(uri);
  if ("fault" in answer) {
    log.debug(
      { host: fetcher.hostOf(uri), fault: answer.fault, detail: answer.detail },
      "a remote object is not fetched",
    );
    return answer;
  }
  // An object that was put meanwhile may be newer than the answer.
  const stored = await store.remote.get(uri);
  if (stored !== undefined && isCurrent(stored)) return stored;
  const request = readFetched({ uri, ...answer }, stored);
  if ("fault" in request) return request;
  try {
    return await put(request);
  } catch (error) {
    if (!REFUSALS.has(codeOf(error))) throw error;
    log.debug({ host: fetcher.hostOf(uri), error: oneLine(error) }, "a fetched object is refused");
    return { fault: "unfit" };
  }
}

const REFUSALS: ReadonlySet<string> = new Set(["invalid", "conflict", "notfound", "gone"]);

/** A later version may have stored an outcome that this one does not know. */
function failed(outcome: string, leftMs?: number): AppError {
  const known: Readonly<Partial<Record<string, Failure>>> = FAILURES;
  const { text, isOutage, forMs }: Failure = known[outcome] ?? FAILURES.status;
  if (!isOutage) return new AppError("notfound", `uri: ${text}`);
  return new AppError("unavailable", `uri: ${text}`, { retryAfterMs: leftMs ?? forMs });
}
