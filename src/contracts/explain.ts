import { z } from "zod";
import { userId } from "./untrusted.js";

/** The author is needed if the log no longer has an event of the drop that names them. */
export const EXPLAIN_REQUEST = z.strictObject({ user: userId, drop: userId, author: userId.optional() });

export type ExplainRequest = z.output<typeof EXPLAIN_REQUEST>;
