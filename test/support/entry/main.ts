import { loadProduct } from "./dist.js";
import { runWithFailpoints } from "./entry.js";

await runWithFailpoints(await loadProduct());
