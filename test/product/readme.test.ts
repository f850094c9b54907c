import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect } from "@jest/globals";
import { becomes } from "../support/eventually.js";
import { testWithStack } from "../support/stack.js";

testWithStack("the README's first event puts a drop into the global timeline", {}, async ({ redis, reads }) => {
  const [, given = ""] = /^redis-cli publish (.*)$/m.exec(readFileSync("README.md", "utf8")) ?? [];
  const words = execFileSync("sh", ["-c", `printf '%s\\n' ${given}`], { encoding: "utf8" });
  const [channel = "", payload = ""] = words.split("\n");
  await redis.publish(channel, payload);
  const { drop_id } = JSON.parse(payload) as { drop_id: string };
  await becomes(async () => expect((await reads.global({ limit: 20 })).drop_ids).toEqual([drop_id]));
});
