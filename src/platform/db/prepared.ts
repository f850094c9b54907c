import { type PGlite, parse, protocol } from "@electric-sql/pglite";

export type Execute = <Row>(sql: string, params: readonly unknown[]) => Promise<Row[]>;

interface Statement {
  readonly name: string;
  readonly types: readonly number[];
}

const { serialize } = protocol;

/** PGlite's own query() plans each time, which takes longer than most statements. The caller runs one at a time. */
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
