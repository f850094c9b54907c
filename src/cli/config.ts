import type { Command } from "commander";
import { VARIABLES } from "../roles/config/config.js";

export function define(command: Command): void {
  command.action(() => console.log(variablesAsMarkdown()));
}

/** The table of docs/configuration.md. */
export function variablesAsMarkdown(): string {
  const rows = VARIABLES.map(
    ({ name, default: value, about }) => `| \`${name}\` | ${value ? `\`${value}\`` : ""} | ${about} |`,
  );
  return ["| Variable | Default | Meaning |", "| --- | --- | --- |", ...rows].join("\n");
}
