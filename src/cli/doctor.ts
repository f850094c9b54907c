import type { Command } from "commander";
import { areUpstreamsBehind, checkBelonging } from "../consistency/index.js";
import { silent } from "../kernel/logger.js";
import { VERSION } from "../kernel/version.js";
import {
  about,
  type Check,
  checked,
  databaseChecks,
  examine,
  fillCheck,
  findingsAsText,
  folderChecks,
  keyChecks,
  natsChecks,
  nodeCheck,
  redisChecks,
  upstreamChecks,
} from "../operators/doctor/index.js";
import { Closers } from "../roles/closers.js";
import { type Config, channelWarning, ownGrpcAddress, readConfig } from "../roles/config/config.js";
import { checkFiles } from "../roles/config/files.js";
import { natsOptions } from "../roles/connections.js";
import { dataFolder, keepsData, MIGRATIONS } from "../roles/database.js";
import { openLog, openRedisAlone } from "./bootstrap.js";
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
  const isAway = findings.some(({ what, state }) => state === "fault" && /^(Redis|NATS) /.test(what));
  if (!isAway) findings.push(...(await examine([dataCheck(config)])));
  progress.end();
  console.log(json ? JSON.stringify(findings) : findingsAsText(findings));
  return findings.some(({ state }) => state === "fault") ? 1 : 0;
}

const channelChecks = (warning: string | undefined): Check[] => {
  const advice = "set a TIMELINE_CHANNEL_PREFIX that no other installation has, such as staging:";
  return warning === undefined ? [] : [async () => [about("Redis Pub/Sub").warning(warning, advice)]];
};

const TOGETHER = "let REDIS_URL and NATS_URL name servers of one environment";
const BEHIND = "bring that database up to date, or run avion-timeline recover --database-is-the-truth";

/** Servers that answer may hold data that `serve` refuses, or that degrade pages. */
const dataCheck = (config: Config): Check =>
  checked("data of Redis and NATS", TOGETHER, async (data) => {
    const closers = new Closers();
    try {
      const opening = { config, name: "doctor", closers };
      const handles = { ...(await openRedisAlone(opening, { onlyLook: true })), ...(await openLog(opening)) };
      await checkBelonging(handles);
      const says =
        "an upstream lacks drops or follows of the log, as after a restore of its database: pages are degraded";
      const isBehind = await areUpstreamsBehind(handles);
      return [isBehind ? data.fault(says, BEHIND) : data.ok("belong together")];
    } finally {
      await closers.closeAll(silent);
    }
  });

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
    fillCheck(redis.urls),
    ...(url !== undefined ? databaseChecks({ url, poolSize, migrations: MIGRATIONS }) : []),
    ...(url === undefined && keepsData(process.roles) ? folderChecks(dataFolder(database)) : []),
    ...(process.roles.includes("gateway") && jwksUrl !== undefined ? keyChecks(jwksUrl) : []),
    ...(userServiceAddr !== undefined && postServiceAddr !== undefined
      ? upstreamChecks({ userServiceAddr, postServiceAddr, tls: upstreams.tls }, ownGrpcAddress(config))
      : []),
  ];
}
