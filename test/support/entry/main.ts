import { loadProduct } from "./dist.js";
import { runEntry } from "./entry.js";

await runEntry(await loadProduct());
