import type { Command } from "commander";
import { createAnalysisOperations } from "../analysis/index.js";
import { ANALYSES } from "../contracts/tables.js";
import { printable } from "../kernel/errors.js";
import { type Opening, openLog } from "./bootstrap.js";
import { defineList, defineOne } from "./records.js";

const ANALYSIS = {
  name: "analysis",
  open: async (opening: Opening) => createAnalysisOperations(await openLog(opening)),
};

export function define(analysis: Command): void {
  defineList(analysis, ANALYSIS, {
    about: "list analyses that are not done: those that wait and then the dead letters, the oldest first",
    limited: "analyses",
    table: ANALYSES,
    read: (operations, { limit }) => operations.first(limit),
  });
  defineOne(analysis, ANALYSIS, {
    name: "show",
    about: "show the status of one analysis, and where its message is",
    argument: ["<id>", "its analysis_id"],
    answer: async (operations, id) => {
      const json = await operations.show(id);
      const lines = Object.entries(json).map(([name, value]) => `${name}: ${printable(String(value ?? "-"))}`);
      return { json, text: lines.join("\n") };
    },
  });
}
