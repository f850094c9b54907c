import { script } from "../platform/redis/scripts.js";

/** Takes tokens from a bucket that fills by the clock of Redis. */
export const TAKE_TOKEN = script("take-token", import.meta.url);
