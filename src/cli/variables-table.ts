import { VARIABLES } from "../roles/config/variables.js";

/** Every variable as a table in Markdown, as docs/configuration.md holds it. */
export function variablesAsMarkdown(): string {
  const rows = Object.entries(VARIABLES).map(([name, variable]) => {
    const value = "default" in variable && variable.default !== "" ? `\`${variable.default}\`` : "";
    return `| \`${name}\` | ${value} | ${variable.about} |`;
  });
  return ["| Variable | Default | Meaning |", "| --- | --- | --- |", ...rows].join("\n");
}
