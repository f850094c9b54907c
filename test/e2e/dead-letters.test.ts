import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { type Stack, type StackOptions, testWithStack } from "../support/stack.js";
import { created, type TimelineEvent } from "../support/timeline-events.js";

const START = Date.now() - 3_600_000;
const OPTIONS: StackOptions = {
  env: { TIMELINE_FANOUT_MAX_ATTEMPTS: "3", TIMELINE_RETRY_BASE_MS: "50" },
  timeoutMs: 90_000,
};

/** Drops of five authors, each with two followers. */
function load({ world }: Stack, count: number): TimelineEvent[] {
  const authors = ["alice", "anna", "arno", "axel", "abel"];
  for (const author of authors) for (const reader of ["bob", "carol"]) world.follow(reader, author);
  const drops = Array.from({ length: count }, (_, number) => {
    const user_id = authors[number % authors.length] ?? "alice";
    return { drop_id: `load-${number}`, user_id, visibility: "public" as const, created_at: START + number };
  });
  world.post(...drops);
  return drops.map(created);
}

function ofAnna(event: TimelineEvent): boolean {
  return "user_id" in event.payload && event.payload.user_id === "anna";
}

/** Lets anna's drops fail until they are given up; yields how many letters that made. */
async function giveUpOnAnna(stack: Stack): Promise<number> {
  const history = load(stack, 40);
  const heal = stack.upstreams.inject({ method: "GetFollowersList", user: "anna", code: status.INTERNAL });
  await stack.publish(...history);
  await stack.streams.settled(history.length, 40_000);
  heal();
  return history.filter(ofAnna).length;
}

async function shown(stack: Stack): Promise<string[]> {
  return stack.redis.zrevrange("timeline:home:bob", 0, -1);
}

testWithStack("a failure of one author alone is given up, and holds up nobody else", OPTIONS, async (stack) => {
  const { streams, world } = stack;
  const count = await giveUpOnAnna(stack);
  const letters = await streams.all("DLQ");
  const log = await streams.all("DROPS");
  expect(letters).toHaveLength(count);
  for (const letter of letters) {
    const original = log.find(({ seq }) => String(seq) === letter.headers["Dlq-Stream-Seq"]);
    expect(letter.subject).toBe("dlq.exhausted.drop_created");
    expect(letter.body).toEqual(original?.body);
    expect(letter.headers).toMatchObject({
      "Dlq-Reason": "exhausted",
      "Dlq-Stream": "DROPS",
      "Dlq-Consumer": "planner",
      "Dlq-Subject": "drops.created",
      "Dlq-Redrive-Count": "0",
      "Dlq-Msg-Id": original?.headers["Nats-Msg-Id"],
      "Dlq-Error": expect.stringMatching(/./),
      "Dlq-Error-Code": expect.stringMatching(/./),
      "Dlq-Version": expect.stringMatching(/./),
      "Dlq-Deliveries": expect.stringMatching(/^[1-9]\d*$/),
    });
    for (const name of ["Dlq-First-Seen", "Dlq-Failed-At"]) {
      expect(Date.parse(letter.headers[name] ?? "")).toBeGreaterThan(START);
    }
  }
  const others = world.homeOf("bob").filter(({ user_id }) => user_id !== "anna");
  expect(await shown(stack)).toEqual(expect.arrayContaining(others.map(({ drop_id }) => drop_id)));
});
