import { invalid } from "./world-error.js";

/** The upstream services that can be broken. */
export const FAULT_SERVICES = ["users", "posts"] as const;
export type FaultService = (typeof FAULT_SERVICES)[number];

/** The gRPC status codes by name; OK makes a call slow, not wrong. */
export const FAULT_CODES = {
  OK: 0,
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;

/** Which calls fail, and how. */
export interface Fault {
  readonly service: FaultService;
  /** A method's name, as in the proto; all of them where it is left out. */
  readonly method?: string | undefined;
  /** Only calls about this user. */
  readonly userId?: string | undefined;
  /** The gRPC status; 0 lets the call through after the delay. */
  readonly code: number;
  readonly delayMs?: number | undefined;
}

/** One call, as it is matched against the faults. */
export interface FaultSite {
  readonly service: FaultService;
  readonly method: string;
  readonly userId?: string | undefined;
}

/** The faults in force. */
export interface Faults {
  /** Breaks calls; a fault for the same calls is replaced. */
  set(fault: Fault): void;
  clear(): void;
  list(): readonly Fault[];
  /** The most specific fault for a call: by user, then by method. */
  find(site: FaultSite): Fault | undefined;
}

const MAX_FAULTS = 1_000;

/** Creates an empty set of faults, to be shared by the services and whoever breaks them. */
export function createFaults(): Faults {
  const faults = new Map<string, Fault>();
  return {
    set(fault) {
      const key = keyOf(fault.service, fault.method, fault.userId);
      if (faults.size >= MAX_FAULTS && !faults.has(key)) throw invalid("faults", `are at most ${MAX_FAULTS}`);
      faults.set(key, fault);
    },
    clear: () => faults.clear(),
    list: () => [...faults.values()],
    find({ service, method, userId }) {
      if (faults.size === 0) return undefined;
      const forUser =
        userId === undefined
          ? undefined
          : (faults.get(keyOf(service, method, userId)) ?? faults.get(keyOf(service, undefined, userId)));
      return forUser ?? faults.get(keyOf(service, method)) ?? faults.get(keyOf(service));
    },
  };
}

function keyOf(service: FaultService, method?: string, userId?: string): string {
  return JSON.stringify([service, method?.toLowerCase() ?? null, userId ?? null]);
}
