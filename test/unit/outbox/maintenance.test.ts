import { expect, test } from "@jest/globals";
import { silent } from "../../../src/kernel/logger.js";
import { startOutboxMaintenance } from "../../../src/outbox/relay.js";

test("published events that cannot be removed are reported: the table would grow unseen", async () => {
  const prune = () => Promise.reject(new Error("permission denied for table outbox"));
  const fields = await new Promise<object>((warned) => {
    const maintenance = startOutboxMaintenance({ prune }, { ...silent, warn: close });
    function close(reported: object): void {
      void maintenance.close().then(() => warned(reported));
    }
  });
  expect(fields).toEqual({ error: "permission denied for table outbox" });
});
