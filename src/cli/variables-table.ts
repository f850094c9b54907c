import { VARIABLES } from "../roles/config/config.js";

/** Every variable as a table in Markdown, as docs/configuration.md holds it. */
export function variablesAsMarkdown(): string {
  const rows = VARIABLES.map(
    ({ name, default: value, about }) => `| \`${name}\` | ${value ? `\`${value}\`` : ""} | ${about} |`,
  );
  return ["| Variable | Default | Meaning |", "| --- | --- | --- |", ...rows].join("\n");
}
