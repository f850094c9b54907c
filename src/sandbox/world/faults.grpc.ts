import { setTimeout as delay } from "node:timers/promises";
import { type handleUnaryCall, type ServerUnaryCall, status } from "@grpc/grpc-js";
import type { Service } from "../../platform/grpc/serve.js";
import type { FaultService, Faults } from "./faults.js";

/** What the timeline service calls. Other methods are people's own, and stay whole. */
const BREAKABLE: Readonly<Record<string, FaultService>> = {
  GetFollowingList: "users",
  GetFollowersList: "users",
  ListFollowChanges: "users",
  GetDropsByUserID: "posts",
  ListDrops: "posts",
};

type Handler = handleUnaryCall<{ readonly user_id?: string }, unknown>;

/** Makes a service fail where the faults say so. */
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

/** Ends early with the call, so that long delays do not pile up behind clients that gave up. */
async function pause(delayMs: number, call: Pick<ServerUnaryCall<unknown, unknown>, "once">): Promise<void> {
  if (delayMs <= 0) return;
  const gone = new AbortController();
  call.once("cancelled", () => gone.abort());
  await delay(delayMs, undefined, { signal: gone.signal, ref: false }).catch(() => undefined);
}
