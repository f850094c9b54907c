/** Runs the bundle as `support/entry` does: with failpoints and limits. */
require("./start.cjs");
