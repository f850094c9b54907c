import type { Command } from "commander";
import { type Explained, explainedAsJson, isWrong, openExplain } from "../consistency/index.js";
import { printable } from "../kernel/errors.js";
import { type Answer, openTimelines, runJob, timelinesOn } from "./bootstrap.js";
import { exitWith, JSON_OPTION, parseUserId } from "./options.js";

interface ExplainOptions {
  readonly author?: string;
  readonly json?: boolean;
}

export function defineExplain(timeline: Command): void {
  timeline
    .command("explain")
    .description("say why a home timeline has a drop, or lacks it; exits 1 if the home is wrong")
    .argument("<user>", "whose home timeline", parseUserId)
    .argument("<drop>", "id of the drop", parseUserId)
    .option("--author <user>", "author of a drop that the log no longer has", parseUserId)
    .addOption(JSON_OPTION)
    .action(exitWith(explain));
}

function explain(user: string, drop: string, { author, json }: ExplainOptions): Promise<number> {
  return runJob(
    { name: "explain", open: openTimelines, json },
    async ({ connections, config, stopping }): Promise<Answer> => {
      const ask = openExplain(connections, timelinesOn(connections, config).hides);
      const answer = await ask({ user, drop, author }, stopping);
      return {
        json: explainedAsJson(answer),
        text: asText(answer),
        failed: isWrong(answer),
      };
    },
  );
}

function asText(answer: Explained): string {
  const { user, drop, verdict, why, admitted, author, createdAt, score, floor } = answer;
  const named = (id: string): string => printable(JSON.stringify(id));
  const events = admitted.map(({ event, seq, time }) => `${event} at ${dateOf(time)}, sequence ${seq} of DROPS`);
  const lines: readonly (readonly [string, string])[] = [
    [
      "author",
      author === undefined ? NOT_KNOWN : `${named(author)}${answer.isPulled ? ", merged when the home is read" : ""}`,
    ],
    ["created", createdAt === undefined ? NOT_KNOWN : dateOf(createdAt)],
    ["events", events.length === 0 ? "none in the log, which keeps seven days" : events.join("; ")],
    ["applied", yesOrNo(answer.isApplied)],
    ["listed by PostService", yesOrNo(answer.isListed)],
    ["deleted", yesOrNo(answer.isTombstoned)],
    ["past the retention", yesOrNo(answer.isPastRetention)],
    ["user or author erased", yesOrNo(answer.isErased)],
    ["for this user", yesOrNo(answer.isForUser)],
    ["follows the author", yesOrNo(answer.follows)],
    ["hidden from the user", yesOrNo(answer.isHidden)],
    ["in the home", score === undefined ? "no" : `yes, at ${dateOf(score)}`],
    [
      "the home goes back to",
      floor === undefined || floor < 0 ? "it is not stored whole" : floor === 0 ? "the start" : dateOf(floor),
    ],
  ];
  const head = `${named(drop)} in the home of ${named(user)}: ${verdict}: ${why}`;
  return [head, ...lines.map(([what, says]) => `  ${`${what}:`.padEnd(WIDTH)}${says}`)].join("\n");
}

const NOT_KNOWN = "not known";
const WIDTH = 24;

const yesOrNo = (fact: boolean | undefined): string => (fact === undefined ? NOT_KNOWN : fact ? "yes" : "no");

const dateOf = (ms: number): string => new Date(ms).toISOString();
