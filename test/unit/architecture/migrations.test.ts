import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "@jest/globals";
import { releaseAfter, releaseOf, VERSION } from "../../../src/kernel/version.js";
import { RELEASE } from "../../support/release.js";

/** This migration dropped a function that running processes called. It is older than the rule. */
const BEFORE_THE_RULE = ["src/users/migrations/0005_set_followings.sql"];

/** Processes of the release before may still use what these statements take away, and omit what they demand. */
const BREAKS: readonly RegExp[] = [
  /\bDROP\s+(?!INDEX\b|CONSTRAINT\b|DEFAULT\b|NOT\s+NULL\b)[^;]*/gi,
  /\bRENAME\b[^;]*/gi,
  /\bALTER\s+(COLUMN\s+)?\w+\s+(SET\s+DATA\s+)?TYPE\b[^;]*/gi,
  /\bSET\s+NOT\s+NULL\b/gi,
  /\bADD\s+(COLUMN\s+)?(?!CONSTRAINT\b)(?![^;,]*\bDEFAULT\b)[^;,]*\bNOT\s+NULL\b/gi,
];

/** A migration that takes something away names the first release that does not use it. */
const UNUSED_SINCE = /^-- Unused since (\d+\.\d+)\.$/m;

const withoutComments = (script: string): string => script.replace(/--.*$/gm, "");

function breaksOf(script: string): string[] {
  const [, since] = UNUSED_SINCE.exec(script) ?? [];
  if (since !== undefined && isEarlier(since, releaseOf(VERSION))) return [];
  return BREAKS.flatMap((pattern) => withoutComments(script).match(pattern) ?? []);
}

const isEarlier = (release: string, than: string): boolean => release.localeCompare(than, "en", { numeric: true }) < 0;

const MIGRATIONS = readdirSync("src", { recursive: true, encoding: "utf8" })
  .filter((file) => /\/migrations\/.*\.sql$/.test(file))
  .map((file) => join("src", file));

test.each(MIGRATIONS.filter((file) => !BEFORE_THE_RULE.includes(file)))(
  "%s lets processes of the release before keep running",
  (file) => {
    expect(breaksOf(readFileSync(file, "utf8"))).toEqual([]);
  },
);

test.each([
  "ALTER TABLE item DROP price",
  "ALTER TABLE item DROP COLUMN price",
  "DROP TABLE item",
  "DROP FUNCTION buy(int)",
  "ALTER TABLE item RENAME price TO cents",
  "ALTER TABLE item ALTER price TYPE bigint",
  "ALTER TABLE item ALTER COLUMN price SET DATA TYPE bigint",
  "ALTER TABLE item ALTER price SET NOT NULL",
  "ALTER TABLE item ADD cents int NOT NULL",
  `-- Unused since ${releaseOf(VERSION)}.\nDROP TABLE item`,
])("%s would break the release before", (script) => {
  expect(breaksOf(script)).not.toEqual([]);
});

test.each([
  "CREATE TABLE item (id int NOT NULL); DROP INDEX old",
  "ALTER TABLE item ADD cents int NOT NULL DEFAULT 0, ADD sold timestamptz",
  "ALTER TABLE item DROP CONSTRAINT cheap, ALTER price DROP NOT NULL",
  "-- It does not DROP TABLE item.",
  "-- Unused since 0.1.\nDROP TABLE item",
])("%s breaks nothing", (script) => {
  expect(breaksOf(script)).toEqual([]);
});

test("upgrades are rehearsed from the newest release before this version", () => {
  expect(VERSION).not.toBe(RELEASE.version);
  expect([releaseOf(RELEASE.version), releaseAfter(RELEASE.version)]).toContain(releaseOf(VERSION));
});
