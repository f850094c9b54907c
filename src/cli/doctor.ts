import { upstreamChecks } from "../doctor/checks.grpc.js";
import { natsChecks } from "../doctor/checks.nats.js";
import { redisChecks } from "../doctor/checks.redis.js";
import { databaseChecks, folderChecks } from "../doctor/checks.sql.js";
import { examine, type Finding, report } from "../doctor/doctor.js";
import { type Config, readConfig } from "../roles/config/config.js";
import { checkFiles } from "../roles/config/files.js";
import { natsOptions } from "../roles/connections.js";
import { dataFolder, keepsData, MIGRATIONS } from "../roles/database.js";
import { VERSION } from "../roles/version.js";
import { createProgress } from "./terminal.js";

const OLDEST_NODE = 20;

/** Looks at everything the configured roles need, says what is wrong and what to do; resolves to the exit code. */
export async function doctor(options: { readonly json: boolean }): Promise<number> {
  const config = readConfig(process.env);
  checkFiles(config);
  const progress = createProgress();
  progress.say("asking Redis, NATS, the database and the upstreams");
  const findings = [nodeFinding(), ...(await examine(checksOf(config)))];
  progress.end();
  console.log(options.json ? JSON.stringify(findings) : report(findings));
  return findings.some(({ state }) => state === "fault") ? 1 : 0;
}

function checksOf(config: Config) {
  const { userServiceAddr, postServiceAddr } = config.upstreams;
  const upstreams =
    userServiceAddr !== undefined && postServiceAddr !== undefined
      ? upstreamChecks({ userServiceAddr, postServiceAddr, tls: config.upstreams })
      : [];
  return [
    ...redisChecks(config.redis.urls, config.redis.allowEviction),
    ...natsChecks(natsOptions(config.nats, "doctor")),
    ...storeChecks(config),
    ...upstreams,
  ];
}

function storeChecks({ process, database }: Config) {
  const { url, poolSize } = database;
  if (url !== undefined) return databaseChecks({ url, poolSize, migrations: MIGRATIONS });
  return keepsData(process.roles) ? folderChecks(dataFolder(database)) : [];
}

function nodeFinding(): Finding {
  const version = process.versions.node;
  const what = `avion-timeline ${VERSION}`;
  if (Number.parseInt(version, 10) >= OLDEST_NODE) return { what, state: "ok", says: `on Node ${version}` };
  return { what, state: "fault", says: `on Node ${version}`, advice: `use Node ${OLDEST_NODE} or newer` };
}
