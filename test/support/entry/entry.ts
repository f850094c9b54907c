import type { serve } from "../../../src/cli/serve.js";
import type { hookFailpoints } from "../../../src/kernel/failpoints.js";
import type { Wraps } from "../../../src/roles/role.js";
import { FAILPOINTS_VARIABLE, failpointsOf } from "../failpoints.js";
import { LIMITS_VARIABLE } from "../limits.js";

/** Functions of the built program. */
export interface Product {
  readonly hookFailpoints: typeof hookFailpoints;
  readonly serve: typeof serve;
  readonly runCli: (argv: readonly string[]) => Promise<void>;
}

/** The tests' entry point: runs the built program with failpoints and limits, which the product's own main does not read. */
export async function runEntry(product: Product, wraps?: Wraps): Promise<void> {
  const failpoints = process.env[FAILPOINTS_VARIABLE];
  if (failpoints) product.hookFailpoints(failpointsOf(failpoints));
  const limits = JSON.parse(process.env[LIMITS_VARIABLE] ?? "{}");
  if (wraps || process.argv[2] === "serve") await product.serve({ limits, ...wraps });
  else await product.runCli(process.argv);
}
