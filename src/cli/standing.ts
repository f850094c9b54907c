import { type Command, InvalidArgumentError } from "commander";
import { z } from "zod";
import { STANDINGS, type Standing, standingNumber, subjectOf } from "../contracts/standings.js";
import { STANDINGS_SHOWN, standingAsJson } from "../contracts/tables.js";
import type { StandingEntry } from "../gen/avion/users.js";
import { readPages } from "../kernel/paging.js";
import { DAY, HOUR, MINUTE, sharedNow } from "../kernel/time.js";
import type { Users } from "../upstreams/upstreams.grpc.js";
import { type Answer, printAnswer, withConnections } from "./bootstrap.js";
import { openUsersAlone } from "./erase.js";
import { argumentOf, exitWith, JSON_OPTION, parseUserId } from "./options.js";
import { defineList, defineOne } from "./records.js";

const STANDING = { name: "standing", open: openUsersAlone };
const PAGE_SIZE = 1_000;
const SUBJECT = ["<subject>", "a user id, or a host, which has a dot", parseUserId] as const;
const AS_USER = ["--user", "the subject is a user id, though it has a dot"] as const;

interface Options {
  readonly user?: boolean;
  readonly json?: boolean;
}

interface SetOptions extends Options {
  readonly until?: number;
  readonly reason: string;
  readonly by: string;
}

export function define(standing: Command): void {
  standing
    .command("set")
    .description("limit or suspend a user, or all actors of a host and its subdomains; active lifts it")
    .argument(...SUBJECT)
    .argument("<standing>", STANDINGS.join(", "), argumentOf(z.enum(STANDINGS)))
    .option("--until <when>", "when it ends by itself: 30m, 2h, 7d (from now), or a date", parseEnd)
    .option("--reason <text>", "why; `standing ls` has it", "")
    .option("--by <name>", "who sets it", "")
    .option(...AS_USER)
    .addOption(JSON_OPTION)
    .action(exitWith(set));
  defineList(standing, STANDING, {
    about: "list the users and hosts that are limited or suspended",
    table: STANDINGS_SHOWN,
    read: (users) => listStandings(users),
  });
  defineOne(standing, STANDING, {
    name: "show",
    about: "show the standing of one user or host; that of a remote actor may be the host's",
    argument: SUBJECT,
    answer: show,
  }).option(...AS_USER);
}

const UNITS = { m: MINUTE, h: HOUR, d: DAY } as const;

function parseEnd(text: string): number {
  const [, count, unit = ""] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  const end = count === undefined ? Date.parse(text) : sharedNow() + Number(count) * UNITS[unit as keyof typeof UNITS];
  if (end > sharedNow()) return end;
  throw new InvalidArgumentError("must be a time from now like 30m, 2h or 7d, or a date in the future");
}

function set(text: string, name: Standing, { until = 0, reason, by, ...options }: SetOptions): Promise<number> {
  return withConnections(STANDING, async (users) => {
    const subject = subjectOf(text, options.user);
    const { changed } = await users.setStanding({ ...subject, standing: standingNumber(name), until, reason, by });
    const answer = await show(users, text, options);
    return printAnswer({ ...answer, json: { ...(answer.json as object), changed } }, options.json);
  });
}

async function show(users: Users, text: string, options: Options): Promise<Answer> {
  const entry = await users.standing(subjectOf(text, options.user));
  const json = standingAsJson(entry as StandingEntry);
  return { json, text: STANDINGS_SHOWN.line(json) };
}

async function* listStandings(users: Users) {
  for await (const { entries } of readPages((page_token) => users.standings({ page_size: PAGE_SIZE, page_token })))
    for (const entry of entries) yield standingAsJson(entry);
}
