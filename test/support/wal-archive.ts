import { execFileSync } from "node:child_process";
import { chownSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { postgresPrograms, unprivileged } from "./postgres.js";

/** A base backup of a PostgreSQL and its archived WAL: together they have each state since the backup. */
export interface WalArchive {
  /** The server that writes it has these. */
  readonly settings: readonly string[];
  /** Makes the base backup. */
  backUp(url: string): void;
  /** Names the state of this moment, and returns the time of the server. */
  namePoint(url: string, name: string): Promise<string>;
  /** Puts the base backup into a new folder; a server with the returned settings recovers it to the name, or to the time. */
  restore(data: string, target: { readonly name: string } | { readonly time: string }): readonly string[];
}

/** Opens an empty archive in a folder that everybody may enter. */
export function openWalArchive(folder: string): WalArchive {
  const { uid, gid } = unprivileged();
  const give = (path: string): void => {
    if (uid !== undefined) chownSync(path, uid, gid as number);
  };
  const [base, wal] = ["base", "wal"].map((name) => {
    const path = join(folder, name);
    mkdirSync(path, { mode: 0o700 });
    give(path);
    return path;
  }) as [string, string];
  return {
    settings: ["archive_mode=on", `archive_command=cp %p ${wal}/%f`],
    backUp: (url) => {
      const args = ["--dbname", url, "--pgdata", base, "--checkpoint=fast", "--no-sync"];
      execFileSync(join(postgresPrograms() as string, "pg_basebackup"), args, unprivileged());
    },
    namePoint: async (url, name) => {
      const client = new pg.Client(url);
      await client.connect();
      await client.query("SELECT pg_create_restore_point($1)", [name]);
      const { rows } = await client.query<{ time: string }>("SELECT clock_timestamp()::text AS time");
      await client.end();
      return (rows[0] as { time: string }).time;
    },
    restore: (data, target) => {
      execFileSync("cp", ["-a", base, data]);
      writeFileSync(join(data, "recovery.signal"), "");
      give(join(data, "recovery.signal"));
      const until = "name" in target ? `recovery_target_name=${target.name}` : `recovery_target_time=${target.time}`;
      return [`restore_command=cp ${wal}/%f %p`, until, "recovery_target_action=promote"];
    },
  };
}
