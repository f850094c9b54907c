import type pg from "pg";
import type { Logger } from "../../kernel/logger.js";
import { backoff, pause, SECOND } from "../../kernel/time.js";
import type { Db } from "./db.js";
import { databaseError } from "./errors.js";

/** Connects at the first `listen`, and again whenever the connection ends. */
export function createListener(newClient: () => pg.Client, log: Logger): Pick<Db, "listen" | "close"> {
  const channels = new Map<string, () => void>();
  let client: pg.Client | undefined;
  let connecting: Promise<pg.Client> | undefined;
  let closed = false;

  const connect = async (): Promise<pg.Client> => {
    const fresh = newClient();
    fresh.on("notification", ({ channel }) => channels.get(channel)?.());
    fresh.on("error", (error) => log.debug({ error: error.message }, "the listening connection ended"));
    try {
      await fresh.connect();
      for (const channel of channels.keys()) await fresh.query(`LISTEN ${channel}`);
    } catch (error) {
      await fresh.end().catch(() => undefined);
      throw databaseError(error);
    }
    client = fresh;
    fresh.once("end", () => {
      client = undefined;
      if (!closed) void reconnect();
    });
    return fresh;
  };

  const reconnect = async (): Promise<void> => {
    for (let tries = 1; !closed; tries++) {
      await pause(backoff(tries, SECOND / 5, 5 * SECOND));
      try {
        await connectOnce();
        // Notifications sent meanwhile are lost.
        for (const heard of channels.values()) heard();
        return;
      } catch (error) {
        if (tries === 1) log.warn({ error: (error as Error).message }, "the database's notifications are unavailable");
      }
    }
  };

  const connectOnce = (): Promise<pg.Client> => {
    connecting ??= connect().finally(() => {
      connecting = undefined;
    });
    return connecting;
  };

  return {
    async listen(channel, heard) {
      channels.set(channel, heard);
      const connection = client ?? (await connectOnce());
      await connection.query(`LISTEN ${channel}`);
    },
    async close() {
      closed = true;
      await connecting?.catch(() => undefined);
      await client?.end();
    },
  };
}
