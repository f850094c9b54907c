import { setTimeout as delay } from "node:timers/promises";
import { type handleUnaryCall, type ServerUnaryCall, status } from "@grpc/grpc-js";
import type { Service } from "../../platform/grpc/serve.js";
import { invalid } from "./problem.http.js";

export const FAULT_SERVICES = ["users", "posts"] as const;
type FaultService = (typeof FAULT_SERVICES)[number];

interface Fault {
  readonly service: FaultService;
  /** A method's name, as in the proto; unset: every method. */
  readonly method?: string | undefined;
  readonly userId?: string | undefined;
  /** The gRPC status; 0 lets the call through after the delay. */
  readonly code: number;
  readonly delayMs?: number | undefined;
}

export interface Faults {
  /** Breaks calls; a fault for the same calls is replaced. */
  set(fault: Fault): void;
  clear(): void;
  list(): readonly Fault[];
  /** The most specific fault for a call: by user, then by method. */
  find(call: Pick<Fault, "service" | "userId"> & { readonly method: string }): Fault | undefined;
}

const MAX_FAULTS = 1_000;

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

/** Only methods that the timeline service calls. */
const BREAKABLE: Readonly<Record<string, FaultService>> = {
  GetFollowingList: "users",
  GetFollowersList: "users",
  ListFollowChanges: "users",
  GetDropsByUserID: "posts",
  ListDrops: "posts",
};

type Handler = handleUnaryCall<{ readonly user_id?: string }, unknown>;

/** Makes calls of a service fail as its faults say. */
export function breakable(service: Service, faults: Faults): Service {
  const implementation = { ...service.implementation };
  for (const [name, { path }] of Object.entries(service.definition)) {
    const method = path.slice(path.lastIndexOf("/") + 1);
    const upstream = BREAKABLE[method];
    if (upstream === undefined) continue;
    implementation[name] = failing(implementation[name] as Handler, (userId) =>
      faults.find({ service: upstream, method, userId }),
    ) as Handler;
  }
  return { ...service, implementation };
}

function failing(answer: Handler, faultOf: (user: string | undefined) => ReturnType<Faults["find"]>): Handler {
  return (call, callback) => {
    const fault = faultOf(call.request.user_id);
    if (fault === undefined) return answer(call, callback);
    void pause(fault.delayMs ?? 0, call).then(() => {
      if (fault.code === status.OK) answer(call, callback);
      else callback({ code: fault.code, details: `broken on purpose: ${status[fault.code] ?? fault.code}` });
    });
  };
}

/** Ends early with the call, so that long delays do not pile up behind clients that have given up. */
async function pause(delayMs: number, call: Pick<ServerUnaryCall<unknown, unknown>, "once">): Promise<void> {
  if (delayMs <= 0) return;
  const gone = new AbortController();
  call.once("cancelled", () => gone.abort());
  await delay(delayMs, undefined, { signal: gone.signal, ref: false }).catch(() => undefined);
}
