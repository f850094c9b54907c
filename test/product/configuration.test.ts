import { readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { variablesAsMarkdown } from "../../src/cli/config.js";

test("docs/configuration.md lists every variable as it is", () => {
  expect(readFileSync("docs/configuration.md", "utf8")).toContain(variablesAsMarkdown());
});
