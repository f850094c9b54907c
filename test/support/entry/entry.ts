import type { serve } from "../../../src/cli/serve.js";
import type { hookFailpoints } from "../../../src/kernel/failpoints.js";
import type { Wraps } from "../../../src/roles/role.js";
import { FAILPOINTS_VARIABLE, failpointsOf } from "../failpoints.js";

/** Functions of the built program. */
export interface Product {
  readonly hookFailpoints: typeof hookFailpoints;
  readonly serve: typeof serve;
  readonly runCli: (argv: readonly string[]) => Promise<void>;
}

/** The tests' entry point: runs the built program with failpoints, which the product's own main does not know. */
export async function runWithFailpoints(product: Product, wraps?: Wraps): Promise<void> {
  const failpoints = process.env[FAILPOINTS_VARIABLE];
  if (failpoints) product.hookFailpoints(failpointsOf(failpoints));
  if (wraps) await product.serve(wraps);
  else await product.runCli(process.argv);
}
