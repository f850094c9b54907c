import type { Db } from "../../src/platform/db/db.js";

/** Tables after their migrations. */
export type Schema = {
  readonly tables: readonly string[];
  /** Rows that the migrations insert. */
  readonly rows: ReadonlyMap<string, string>;
  /** Differs once something was made, changed or dropped. */
  readonly signature: string;
};

const FIRST_OF_OURS = 16_384;

const TABLES = `
SELECT oid::regclass::text AS name FROM pg_class
WHERE oid >= ${FIRST_OF_OURS} AND relkind IN ('r', 'p') AND NOT relispartition`;

/** A table that is emptied keeps its oid. */
const SIGNATURE = `
SELECT md5(string_agg(part, ' ' ORDER BY part)) AS signature FROM (
  SELECT concat('r', oid) AS part FROM pg_class WHERE oid >= ${FIRST_OF_OURS}
  ${["pg_namespace", "pg_proc", "pg_constraint", "pg_attrdef", "pg_trigger", "pg_type"]
    .map((catalog) => `UNION ALL SELECT concat(oid, '.', xmin) FROM ${catalog} WHERE oid >= ${FIRST_OF_OURS}`)
    .join("\n")}
  UNION ALL SELECT concat(attrelid, '.', attnum, '.', xmin) FROM pg_attribute WHERE attrelid >= ${FIRST_OF_OURS}
) parts`;

/** A sequence that gave no number yet has none. */
const RESTART = `
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
FROM pg_sequences WHERE last_value IS NOT NULL`;

async function signatureOf({ query }: Pick<Db, "query">): Promise<string> {
  const [row] = await query<{ signature: string }>(SIGNATURE);
  return row?.signature ?? "";
}

const rowsOf = async ({ query }: Pick<Db, "query">, table: string): Promise<string | undefined> => {
  const [all] = await query<{ rows: string | null }>(`SELECT jsonb_agg(t)::text AS rows FROM ${table} t`);
  return all?.rows ?? undefined;
};

export async function schemaOf(db: Db): Promise<Schema> {
  const tables = (await db.query<{ name: string }>(TABLES)).map(({ name }) => name);
  const rows = new Map<string, string>();
  for (const table of tables) {
    const kept = await rowsOf(db, table);
    if (kept !== undefined) rows.set(table, kept);
  }
  return { tables, rows, signature: await signatureOf(db) };
}

/** Emptying a table costs its files anew: most tests fill few. */
async function changedTables({ query }: Pick<Db, "query">, { tables, rows }: Schema): Promise<string[]> {
  const looks = tables.map((table) => `SELECT '${table}' AS name, EXISTS (SELECT FROM ${table}) AS filled`);
  const all = await query<{ name: string; filled: boolean }>(looks.join(" UNION ALL "));
  const changed: string[] = [];
  for (const { name, filled } of all) {
    const kept = rows.get(name);
    if (kept === undefined ? filled : (await rowsOf({ query }, name)) !== kept) changed.push(name);
  }
  return changed;
}

/** Leaves what the migrations left. False if a test has changed the schema, or still has a table locked. */
export async function isEmptied(db: Db, schema: Schema): Promise<boolean> {
  try {
    if ((await signatureOf(db)) !== schema.signature) return false;
    await db.transaction(async ({ query, run }) => {
      await run("SET LOCAL lock_timeout = '2s'");
      const changed = await changedTables({ query }, schema);
      if (changed.length > 0) await run(`TRUNCATE ${changed.join(", ")} CASCADE`);
      for (const table of changed.filter((name) => schema.rows.has(name)))
        await query(`INSERT INTO ${table} SELECT * FROM jsonb_populate_recordset(NULL::${table}, $1::jsonb)`, [
          schema.rows.get(table),
        ]);
      await query(RESTART);
    });
    return true;
  } catch {
    return false;
  }
}
