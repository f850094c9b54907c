import { expect } from "@jest/globals";
import { runMain, type ServiceProcess } from "./service.js";
import type { Stack } from "./stack.js";

/** Starts one command of the built program on a stack's servers. */
export function startCommand(
  { serviceOptions }: Pick<Stack, "serviceOptions">,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): ServiceProcess {
  const { redisUrl, natsUrl, usersAddress, postsAddress } = serviceOptions;
  return runMain(args, {
    ...{ REDIS_URL: redisUrl, NATS_URL: natsUrl },
    ...{ TIMELINE_USER_SERVICE_ADDR: usersAddress, TIMELINE_POST_SERVICE_ADDR: postsAddress },
    ...serviceOptions.env,
    ...env,
  });
}

/** Runs a command to its end with `--json`; yields what it printed, and fails where it exits otherwise. */
export async function jsonOf<T>(
  stack: Pick<Stack, "serviceOptions">,
  args: readonly string[],
  how: { readonly code?: number; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<T> {
  const run = startCommand(stack, [...args, "--json"], how.env);
  const { code } = await run.exited;
  const wanted = how.code ?? 0;
  expect({ args, code, ...(code === wanted ? {} : { output: run.output(), errors: run.errors() }) }).toEqual({
    args,
    code: wanted,
  });
  return JSON.parse(run.output()) as T;
}
