import { MUTANTS, type Mutant } from "./mutants.js";

type Serving = typeof import("../../../src/cli/serve.js");

// Starts the built service as `serve` does, with the broken part that the command line names.
const { serve } = (await import(new URL("../../../dist/cli/serve.js", import.meta.url).href)) as Serving;
await serve(MUTANTS[process.argv[2] as Mutant]);
