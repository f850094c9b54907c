import { loadProduct } from "../../support/entry/dist.js";
import { runEntry } from "../../support/entry/entry.js";
import { MUTANTS, type Mutant } from "./mutants.js";

// Serves with the broken part that the command line names.
await runEntry(await loadProduct(), MUTANTS[process.argv[2] as Mutant]);
