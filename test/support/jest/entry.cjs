/** Runs the bundle as `support/entry` does: with failpoints. */
require("./start.cjs");
