import { type handleUnaryCall, status } from "@grpc/grpc-js";
import { pause } from "../../kernel/time.js";
import type { Service } from "../../platform/grpc/unary.js";

export const FAULT_SERVICES = ["users", "posts"] as const;
type FaultService = (typeof FAULT_SERVICES)[number];

interface Fault {
  readonly service: FaultService;
  /** Name as in the proto. If it is unset, every method fails. */
  readonly method?: string | undefined;
  readonly userId?: string | undefined;
  /** Calls get this gRPC status; 0 lets them through after the delay. */
  readonly code: number;
  readonly delayMs: number;
}

type CallKey = Pick<Fault, "service" | "method" | "userId">;

const MAX_FAULTS = 1_000;

const keyOf = ({ service, method, userId }: CallKey): string => JSON.stringify([service, method, userId]);

export class Faults {
  readonly #faults = new Map<string, Fault>();

  /** A fault for the same calls is replaced. False if there are too many. */
  set(fault: Fault): boolean {
    const key = keyOf(fault);
    if (this.#faults.size >= MAX_FAULTS && !this.#faults.has(key)) return false;
    this.#faults.set(key, fault);
    return true;
  }

  clear(): void {
    this.#faults.clear();
  }

  list(): Fault[] {
    return [...this.#faults.values()];
  }

  /** Finds the most specific fault for a call: by user, then by method. */
  find({ service, method, userId }: CallKey): Fault | undefined {
    const specificFirst = [{ method, userId }, { userId }, { method }, {}];
    return specificFirst.map((part) => this.#faults.get(keyOf({ service, ...part }))).find((fault) => fault);
  }
}

/** Only methods that the timeline service calls can be broken. */
const BREAKABLE: Readonly<Record<string, FaultService>> = {
  GetFollowingList: "users",
  GetFollowersList: "users",
  ListFollowChanges: "users",
  GetDropsByUserID: "posts",
  ListDrops: "posts",
};

/** Returns the methods of a service that a fault can break. */
export const methodsOf = (service: FaultService): string[] =>
  Object.keys(BREAKABLE).filter((method) => BREAKABLE[method] === service);

type Handler = handleUnaryCall<{ readonly user_id?: string }, unknown>;

/** Makes calls of a service fail as its faults say. */
export function breakable(service: Service, faults: Faults): Service {
  const implementation = { ...service.implementation };
  for (const [name, { path }] of Object.entries(service.definition)) {
    const method = path.slice(path.lastIndexOf("/") + 1);
    const upstream = BREAKABLE[method];
    if (upstream === undefined) continue;
    const answer = implementation[name] as Handler;
    const broken: Handler = (call, callback) => {
      const fault = faults.find({ service: upstream, method, userId: call.request.user_id });
      if (fault === undefined) return answer(call, callback);
      // Long delays must not pile up behind clients that have given up.
      const cancelled = new AbortController();
      call.once("cancelled", () => cancelled.abort());
      void pause(fault.delayMs, cancelled.signal).then(() => {
        if (fault.code === status.OK) answer(call, callback);
        else callback({ code: fault.code, details: `broken on purpose: ${status[fault.code] ?? fault.code}` });
      });
    };
    implementation[name] = broken as Handler;
  }
  return { ...service, implementation };
}
