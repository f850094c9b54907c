import { status } from "@grpc/grpc-js";
import type { Request, Response, Router } from "express";
import { z } from "zod";
import { understood, userId } from "../../contracts/untrusted.js";
import { AppError, invalid } from "../../kernel/errors.js";
import { FAULT_SERVICES, type Faults, methodsOf } from "./faults.grpc.js";

/** Operations of the service; both reject if it does not answer. */
export interface DeadLetters {
  /** Resolves to the dead letters as `avion.ops.dlq.list` answers them. */
  list(): Promise<unknown>;
  /** Resolves to the report of `avion.ops.dlq.redrive`. */
  redrive(): Promise<unknown>;
}

const faultRequest = z.strictObject({
  service: z.enum(FAULT_SERVICES),
  method: z.string().min(1).max(64).optional(),
  user_id: userId.optional(),
  // An enum of TypeScript holds its numbers as keys, too.
  code: z
    .enum(Object.keys(status).filter((key) => Number.isNaN(Number(key))) as [keyof typeof status])
    .default("UNAVAILABLE"),
  delay_ms: z.number().int().min(0).max(60_000).default(0),
});

export function addFaults(router: Router, faults: Faults): void {
  const list = (response: Response): void => void response.json({ faults: faults.list() });
  router.get("/faults", (_request, response) => list(response));
  router.post("/faults", (request, response) => {
    const { service, method, user_id: userId, code, delay_ms: delayMs } = understood(faultRequest, request.body ?? {});
    const methods = methodsOf(service);
    if (method !== undefined && !methods.includes(method))
      throw invalid("method", `must be one of ${methods.join(", ")}`);
    if (!faults.set({ service, method, userId, code: status[code], delayMs })) throw invalid("faults", "are too many");
    list(response);
  });
  router.delete("/faults", (_request, response) => {
    faults.clear();
    list(response);
  });
}

export function addDeadLetters(router: Router, deadLetters: DeadLetters): void {
  const answer =
    (ask: () => Promise<unknown>) =>
    async (_request: Request, response: Response): Promise<void> => {
      const answered = await ask().catch((cause) => {
        throw new AppError("unavailable", "the worker, which answers for dead letters, is away", { cause });
      });
      response.json(answered);
    };
  router.get(
    "/dead-letters",
    answer(async () => ({ dead_letters: await deadLetters.list() })),
  );
  router.post("/dead-letters/redrive", answer(deadLetters.redrive));
}
