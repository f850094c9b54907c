import { SUBJECT_OF } from "../contracts/events.js";
import { namesPerson, type Person, parsedJson } from "../contracts/people.js";
import { pause } from "../kernel/time.js";
import { PLANNED_EACH_TIME, type Queries } from "../platform/db/db.js";
import type { Places } from "./places.js";

interface Column {
  readonly name: string;
  readonly type: string;
}

interface Table {
  readonly name: string;
  /** A partition is named as its table. */
  readonly root: string;
  readonly blocks: number;
  readonly columns: readonly Column[];
}

const TABLES = `
  SELECT format('%I.%I', n.nspname, c.relname) AS name, pg_relation_size(c.oid) / current_setting('block_size')::bigint
    AS blocks, (SELECT format('%I.%I', rn.nspname, r.relname) FROM pg_class r JOIN pg_namespace rn ON rn.oid = r.relnamespace
      WHERE r.oid = coalesce(pg_partition_root(c.oid), c.oid)) AS root,
    json_agg(json_build_object('name', a.attname, 'type', format_type(a.atttypid, NULL)) ORDER BY a.attnum) AS columns
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  WHERE c.relkind = 'r' AND n.nspname IN ('public', 'users', 'posts') GROUP BY c.oid, n.nspname, c.relname ORDER BY 1`;

/** A step reads 32 MB. */
const BLOCKS_A_STEP = 4_096;
const STEP_MS = 10;

/** People write these texts, or programs choose them: one may be the same as an id. */
const NO_IDS =
  /^(body|summary|display_name|bio|avatar_url|document|payload|public_key|secret|kind|source|task|holder|type|key|subject|message_id|traceparent|status|name|host|outcome|reason)$/;
/** Tables with such names are those of erasures. */
const OF_ERASURES = /erased|erasure/;
const OUTBOX = "public.outbox";

export async function verifyTables(
  db: Queries,
  person: Person,
  places: Places,
  checked: (table: string) => void,
): Promise<void> {
  for (const table of await db.query<Table>(TABLES))
    for (let block = 0; block < table.blocks; block += BLOCKS_A_STEP) {
      const range = [`(${block},0)`, `(${block + BLOCKS_A_STEP},0)`] as const;
      await countColumns(db, table, { person, places, range });
      await readJson(db, table, { person, places, range });
      checked(table.root);
      await pause(STEP_MS);
    }
}

interface Step {
  readonly person: Person;
  readonly places: Places;
  readonly range: readonly [string, string];
}

interface Exempt {
  readonly sql: string;
  readonly why: string;
}

const NONE: Exempt = { sql: "false", why: "" };

function exemptOf({ root, columns }: Table): Exempt {
  if (OF_ERASURES.test(root)) return { sql: "true", why: "the erasure itself" };
  if (root === OUTBOX) return { sql: `subject = '${SUBJECT_OF.user_erased}'`, why: "the event of the erasure" };
  const hasTombstones = columns.some(({ name }) => name === "deleted_at");
  return hasTombstones ? { sql: "deleted_at IS NOT NULL", why: "a tombstone, until its age" } : NONE;
}

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;
const isText = ({ name, type }: Column): boolean => /^(text|character varying)$/.test(type) && !NO_IDS.test(name);
const isList = ({ type }: Column): boolean => type === "text[]";

async function countColumns(db: Queries, table: Table, { person, places, range }: Step): Promise<void> {
  const asked = table.columns.filter((column) => isText(column) || isList(column));
  if (asked.length === 0) return;
  const exempt = exemptOf(table);
  const counts = asked.flatMap((column, index) => {
    const names = `${quoted(column.name)} ${isList(column) ? "&& $1::text[]" : "= ANY($1::text[])"}`;
    return [
      `count(*) FILTER (WHERE ${names}) AS n${index}`,
      `count(*) FILTER (WHERE ${names} AND ${exempt.sql}) AS e${index}`,
    ];
  });
  const sql = `SELECT ${counts.join(", ")} FROM ${table.name} WHERE ctid >= $2::tid AND ctid < $3::tid`;
  const [row = {}] = await db.query<Record<string, number>>(sql, [idsOf(person), ...range], PLANNED_EACH_TIME);
  for (const [index, { name }] of asked.entries()) {
    const [all = 0, exempted = 0] = [row[`n${index}`], row[`e${index}`]];
    const place = { server: "PostgreSQL", place: `${table.root}.${name}` } as const;
    places.add({ ...place, count: all - exempted, mayStay: false, why: "rows that name the user" });
    places.add({ ...place, count: exempted, mayStay: true, why: exempt.why });
  }
}

async function readJson(db: Queries, table: Table, { person, places, range }: Step): Promise<void> {
  const columns = table.columns.filter(
    ({ name, type }) => (/^jsonb?$/.test(type) && !NO_IDS.test(name)) || (table.root === OUTBOX && name === "body"),
  );
  const exempt = exemptOf(table);
  const inJson = idsOf(person).map((id) => JSON.stringify(id).slice(1, -1));
  for (const { name } of columns) {
    const text = `${quoted(name)}::text`;
    const rows = await db.query<{ value: string; exempt: boolean }>(
      `SELECT ${text} AS value, ${exempt.sql} AS exempt FROM ${table.name} WHERE ctid >= $2::tid AND ctid < $3::tid
         AND EXISTS (SELECT FROM unnest($1::text[]) id WHERE strpos(${text}, id) > 0)`,
      [inJson, ...range],
      PLANNED_EACH_TIME,
    );
    const named = rows.filter(({ value }) => namesPerson(parsedJson(value), person));
    const place = { server: "PostgreSQL", place: `${table.root}.${name}` } as const;
    const exempted = named.filter((row) => row.exempt).length;
    places.add({ ...place, count: named.length - exempted, mayStay: false, why: "JSON that names the user" });
    places.add({ ...place, count: exempted, mayStay: true, why: exempt.why });
  }
}

const idsOf = ({ user, token }: Person): string[] => [...new Set([user, token])];
