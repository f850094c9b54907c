import type { Command } from "commander";
import type { Table } from "../contracts/tables.js";
import type { Config } from "../roles/config/config.js";
import { type Answer, type Opening, printAnswer, withConnections } from "./bootstrap.js";
import { exitWith, JSON_OPTION, wholeNumber } from "./options.js";

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 10_000;

interface Source<Opened> {
  readonly name: string;
  readonly open: (opening: Opening) => Promise<Opened>;
}

interface Listing<Opened, Row> {
  readonly about: string;
  /** Name of the rows for `--limit`; without it all are listed. */
  readonly limited?: string;
  readonly table: Pick<Table<Row>, "none" | "line">;
  readonly read: (
    opened: Opened,
    asked: { readonly limit: number; readonly config: Config },
  ) => AsyncIterable<Row> | Promise<readonly Row[]>;
}

/** Defines `ls`, which prints a line for each row as it is read, or all rows as JSON. */
export function defineList<Opened, Row>(
  command: Command,
  source: Source<Opened>,
  { about, limited, table, read }: Listing<Opened, Row>,
): void {
  const ls = command.command("ls").description(about);
  if (limited !== undefined)
    ls.option(
      "--limit <count>",
      `maximum number of ${limited}`,
      wholeNumber({ min: 1, max: MAX_LIMIT }),
      DEFAULT_LIMIT,
    );
  const list = ({ limit, json }: { readonly limit: number; readonly json?: boolean }): Promise<number> =>
    withConnections(source, async (opened, config) => {
      const rows: Row[] = [];
      for await (const row of await read(opened, { limit, config })) {
        rows.push(row);
        if (!json) console.log(table.line(row));
      }
      if (json) console.log(JSON.stringify(rows));
      else if (rows.length === 0) console.log(table.none);
      return 0;
    });
  ls.addOption(JSON_OPTION).action(exitWith(list));
}

interface One<Opened, Id, Options> {
  readonly name: string;
  readonly about: string;
  readonly argument: readonly [name: string, about: string, parse?: (text: string) => Id];
  /** Resolves to undefined if nothing was done, and the operator has been told why. */
  readonly answer: (opened: Opened, id: Id, options: Options) => Promise<Answer | undefined>;
}

/** Defines a command that shows one record, or acts on it. More options may be added. */
export function defineOne<Opened, Id = string, Options extends object = object>(
  command: Command,
  source: Source<Opened>,
  { name, about, argument: [id, aboutId, parse], answer }: One<Opened, Id, Options>,
): Command {
  const added = command.command(name).description(about);
  if (parse) added.argument(id, aboutId, parse);
  else added.argument(id, aboutId);
  return added
    .addOption(JSON_OPTION)
    .action(
      exitWith((given: Id, options: Options & { readonly json?: boolean }) =>
        withConnections(source, async (opened) => printAnswer(await answer(opened, given, options), options.json)),
      ),
    );
}
