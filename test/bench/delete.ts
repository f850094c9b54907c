import type { Run } from "./support/bench.js";
import { landing } from "./support/landing.js";

export const run: Run = (parameters, bench) => landing("delete", parameters, bench);
