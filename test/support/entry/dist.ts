import type { Product } from "./entry.js";

const load = (path: string) => import(new URL(`../../../dist/${path}`, import.meta.url).href);

/** The files that `npm run build` made. */
export async function loadProduct(): Promise<Product> {
  const { hookFailpoints } = await load("kernel/failpoints.js");
  const { serve } = await load("cli/serve.js");
  const { runCli } = await load("cli/program.js");
  return { hookFailpoints, serve, runCli: (argv) => runCli(argv, []) };
}
