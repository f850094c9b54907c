import type { Command } from "commander";
import {
  about,
  type Check,
  databaseChecks,
  examine,
  findingsAsText,
  folderChecks,
  keyChecks,
  natsChecks,
  nodeCheck,
  redisChecks,
  upstreamChecks,
} from "../doctor/index.js";
import { VERSION } from "../kernel/version.js";
import { type Config, channelWarning, ownGrpcAddress, readConfig } from "../roles/config/config.js";
import { checkFiles } from "../roles/config/files.js";
import { natsOptions } from "../roles/connections.js";
import { dataFolder, keepsData, MIGRATIONS } from "../roles/database.js";
import { exitWith, JSON_OPTION } from "./options.js";
import { createProgress } from "./terminal.js";

export function define(command: Command): void {
  command.addOption(JSON_OPTION).action(exitWith(doctor));
}

/** Checks what the configured roles need. Exit code 1: a fault. */
async function doctor({ json }: { readonly json?: boolean }): Promise<number> {
  const config = readConfig(process.env);
  checkFiles(config);
  const progress = createProgress();
  progress.say("asking Redis, NATS, the database and the upstreams");
  const findings = await examine(checksOf(config));
  progress.end();
  console.log(json ? JSON.stringify(findings) : findingsAsText(findings));
  return findings.some(({ state }) => state === "fault") ? 1 : 0;
}

const channelChecks = (warning: string | undefined): Check[] => {
  const advice = "set a TIMELINE_CHANNEL_PREFIX that no other installation has, such as staging:";
  return warning === undefined ? [] : [async () => [about("Redis Pub/Sub").warning(warning, advice)]];
};

function checksOf(config: Config): Check[] {
  const { process, redis, nats, upstreams, database, gateway } = config;
  const { jwksUrl } = gateway;
  const { userServiceAddr, postServiceAddr } = upstreams;
  const { url, poolSize } = database;
  return [
    nodeCheck(VERSION),
    ...redisChecks(redis.urls, redis.allowEviction),
    ...channelChecks(channelWarning(config)),
    ...natsChecks(natsOptions(nats, "doctor"), nats.notifyParts),
    ...(url !== undefined ? databaseChecks({ url, poolSize, migrations: MIGRATIONS }) : []),
    ...(url === undefined && keepsData(process.roles) ? folderChecks(dataFolder(database)) : []),
    ...(process.roles.includes("gateway") && jwksUrl !== undefined ? keyChecks(jwksUrl) : []),
    ...(userServiceAddr !== undefined && postServiceAddr !== undefined
      ? upstreamChecks({ userServiceAddr, postServiceAddr, tls: upstreams }, ownGrpcAddress(config))
      : []),
  ];
}
