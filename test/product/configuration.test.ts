import { readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { variablesAsMarkdown } from "../../src/cli/config.js";
import { VARIABLES } from "../../src/roles/config/config.js";

test("docs/configuration.md lists every variable as it is, and each once", () => {
  expect(readFileSync("docs/configuration.md", "utf8")).toContain(variablesAsMarkdown());
  const listed = [...variablesAsMarkdown().matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name);
  expect(listed).toHaveLength(VARIABLES.length);
  expect(new Set(listed)).toEqual(new Set(VARIABLES.map(({ name }) => name)));
});
