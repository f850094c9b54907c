import { expect, test } from "@jest/globals";
import { NatsError } from "nats";
import { publishError, publishRefusal } from "../../../src/platform/nats/publish-errors.js";

/** As nats-server says why it does not store a message: the code, its own code, and a description. */
const ANSWERS = [
  [503, 10009, "cluster is not leader", undefined],
  [429, 10167, "too many requests", undefined],
  [503, 10077, "maximum bytes exceeded", "full"],
  [400, 10109, "invalid operation on sealed stream", "refused"],
] as const;

test.each(ANSWERS)("an answer of %i %i (%s) counts as %s", (code, err_code, description, counted) => {
  const api_error = { code, err_code, description };
  const answered = Object.assign(new NatsError(description, String(code)), { api_error });
  const error = publishError(answered, "drops.created");
  expect([error.code, publishRefusal(error)]).toEqual(["unavailable", counted]);
});
