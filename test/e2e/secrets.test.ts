import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { JWT_SECRET, runMain } from "../support/service.js";

const MARKER = "hunter2marker";
const COMMANDS: readonly (readonly string[])[] = [
  ["serve"],
  ["doctor"],
  ["doctor", "--json"],
  ["dlq", "ls"],
  ["reconcile", "--since", "1h"],
  ["audit"],
];

const COMPLETE = {
  REDIS_URL: `redis://:${MARKER}@127.0.0.1:1`,
  NATS_URL: `nats://user:${MARKER}@127.0.0.1:1`,
  DATABASE_URL: `postgres://user:${MARKER}@127.0.0.1:1/timeline`,
  TIMELINE_ROLES: "bridge,fanout,api,gateway,users,posts",
  TIMELINE_USER_SERVICE_ADDR: "127.0.0.1:1",
  TIMELINE_POST_SERVICE_ADDR: "127.0.0.1:1",
  TIMELINE_GRPC_ADDR: "127.0.0.1:0",
  TIMELINE_HTTP_ADDR: "127.0.0.1:0",
  TIMELINE_JWT_SECRET: `${JWT_SECRET}${MARKER}`,
};

const FORMS: readonly [string, Readonly<Record<string, string>>][] = [
  ["taken, and no server is there", {}],
  [
    "of sentinels, and none is there",
    { REDIS_URL: `redis+sentinel://u:${MARKER}@127.0.0.1:1/main?sentinel_user=s&sentinel_password=${MARKER}` },
  ],
  [
    "of other protocols, in the place of a file or an address, and of a token that is too short",
    {
      ...{
        REDIS_URL: `http://:${MARKER}@h`,
        NATS_URL: `redis://u:${MARKER}@h`,
        DATABASE_URL: `mysql://u:${MARKER}@h/x`,
      },
      TIMELINE_NATS_CREDS: `-----BEGIN NATS USER JWT-----${MARKER}`,
      TIMELINE_NATS_TLS: `-----BEGIN PRIVATE KEY-----${MARKER}`,
      TIMELINE_USER_SERVICE_ADDR: `user:${MARKER}@h:1`,
      TIMELINE_JWT_JWKS_URL: `https://u:${MARKER}@h/keys`,
      TIMELINE_JWT_SECRET: MARKER,
    },
  ],
  [
    "with parts that are not used",
    { REDIS_URL: `redis://h/${MARKER}`, NATS_URL: `nats://h?p=${MARKER}`, DATABASE_URL: `postgres://h/x?p=${MARKER}` },
  ],
  [
    "that cannot be parsed",
    { REDIS_URL: `redis://:${MARKER}/@h`, NATS_URL: `nats://u:${MARKER}#@h:x`, DATABASE_URL: `:${MARKER}@h` },
  ],
];

test.each(FORMS)(
  "no command prints a secret %s",
  async (_form, env) => {
    for (const command of COMMANDS) {
      const run = runMain(command, { ...COMPLETE, TIMELINE_LOG_LEVEL: "trace", ...env });
      let over = false;
      void run.exited.then(() => {
        over = true;
      });
      // A start waits for its servers.
      await eventually(() => over || /not there yet/.test(run.output()), `${command.join(" ")} has said all`, 60_000);
      run.signal("SIGKILL");
      await run.exited;
      const text = run.output() + run.errors();
      expect([command, text]).toEqual([command, expect.not.stringContaining(MARKER)]);
      expect([command, text.length > 0]).toEqual([command, true]);
    }
  },
  120_000,
);
