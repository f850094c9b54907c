import { type PGlite, parse, protocol } from "@electric-sql/pglite";

/** Runs a statement with its parameters on the session, and returns its rows. */
export type Execute = <Row>(sql: string, params: readonly unknown[]) => Promise<Row[]>;

interface Statement {
  readonly name: string;
  /** Types of its parameters, as OIDs. */
  readonly types: readonly number[];
}

const { serialize } = protocol;

/**
 * Makes what executes statements that are prepared once: PGlite's own query() parses and plans each time, which in
 * WebAssembly takes longer than most of our statements. The messages are those of PostgreSQL's extended query protocol
 * (PostgreSQL, "Message Flow"). The caller sees to it that one statement runs at a time.
 */
export function createPrepared(lite: PGlite): Execute {
  const statements = new Map<string, Statement>();
  const prepare = async (text: string): Promise<Statement> => {
    const name = `s${statements.size}`;
    const asked = [serialize.parse({ name, text }), serialize.describe({ type: "S", name }), serialize.sync()];
    const { messages } = await lite.execProtocol(Buffer.concat(asked));
    const statement = { name, types: parse.parseDescribeStatementResults(messages) };
    statements.set(text, statement);
    return statement;
  };
  return async <Row>(sql: string, params: readonly unknown[]) => {
    const { name, types } = statements.get(sql) ?? (await prepare(sql));
    const asked = [
      serialize.bind({ statement: name, values: params.map((value, index) => asText(lite, value, types[index])) }),
      serialize.describe({ type: "P" }),
      serialize.execute({}),
      serialize.sync(),
    ];
    const { messages } = await lite.execProtocol(Buffer.concat(asked));
    return (parse.parseResults(messages, lite.parsers)[0]?.rows ?? []) as Row[];
  };
}

function asText(lite: PGlite, value: unknown, type: number | undefined): string | null {
  if (value === null || value === undefined) return null;
  const serializer = type === undefined ? undefined : lite.serializers[type];
  return serializer ? serializer(value) : String(value as string | number | boolean);
}
