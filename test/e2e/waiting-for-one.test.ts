import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { jsonOf } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { limited } from "../support/limits.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, followed } from "../support/timeline-events.js";
import { homeKey } from "../support/timeline-keys.js";

type Audited = Readonly<Record<"users" | "differ" | "repaired", number>> & { readonly undecided: readonly string[] };

/** The check of a publication would repair what the audit is to find. */
const UNCHECKED = limited({ publicationChecks: { rate: 0 } });

let posted = 0;
async function post({ world, publish }: Stack, author: string): Promise<string> {
  const drop_id = `${author}-${++posted}`;
  const drop = { drop_id, user_id: author, visibility: "public" as const, created_at: Date.now() };
  world.post(drop);
  await publish(created(drop));
  return drop_id;
}

const lands = ({ redis }: Stack, reader: string, drop: string): Promise<void> =>
  eventually(async () => (await redis.zscore(homeKey(reader), drop)) !== null, `${drop} lands`, 30_000);

/** From then on nobody writes the drop again. */
const completed = ({ streams }: Stack, drop: string): Promise<void> =>
  eventually(
    async () => (await streams.all("COMPLETIONS")).some(({ body }) => String(body).includes(drop)),
    `the fan-out of ${drop} is complete`,
    30_000,
  );

// Invariant 5.
testWithStack(
  "while events wait for one author, audits repair what does not depend on them, and recover is not refused",
  { env: { TIMELINE_AUDIT_SETTLE_MS: "300", ...UNCHECKED }, timeoutMs: 180_000 },
  async (stack) => {
    const { world, upstreams, redis, reads, service } = stack;
    world.follow("bob", "alice");
    world.follow("carol", "anna");
    for (const reader of ["bob", "carol"]) await reads.home(reader);
    await lands(stack, "bob", await post(stack, "alice"));
    const heals = ["GetFollowersList" as const, "GetDropsByUserID" as const].map((method) =>
      upstreams.inject({ method, user: "anna", code: status.UNAVAILABLE }),
    );
    const waiting = await post(stack, "anna");
    await stack.publish(followed("dora", "anna", world.follow("dora", "anna")));
    await eventually(() => (service.output().match(/goes back to the queue/g) ?? []).length >= 2, "both wait");
    const lost = await post(stack, "alice");
    await completed(stack, lost);

    // The audit of carol cannot read the drops of anna.
    let audited: Audited | undefined;
    const isFound = async (): Promise<boolean> => {
      // Planted again where something has written the drop between this and the audit.
      await redis.zrem(homeKey("bob"), lost);
      audited = await jsonOf<Audited>(stack, ["audit", "--user", "bob", "--fix"]);
      return audited.differ === 1;
    };
    await eventually(isFound, "the audit finds what is lost", 60_000);
    expect(audited).toMatchObject({ users: 1, differ: 1, repaired: 1, undecided: [] });
    expect(await redis.zscore(homeKey("bob"), lost)).not.toBeNull();
    heals[1]?.();
    const undecided = await jsonOf<Audited>(stack, ["audit", "--user", "carol", "--fix"], { code: 1 });
    expect(undecided).toMatchObject({ differ: 0, repaired: 0, undecided: ["carol"] });
    const recovered = await jsonOf<object>(stack, ["recover", "--database-is-the-truth", "--force"]);
    expect(recovered).toMatchObject({ drops: 0, edges: 0, undone: true });

    heals[0]?.();
    await lands(stack, "carol", waiting);
    expect(await jsonOf<Audited>(stack, ["audit", "--user", "carol"])).toMatchObject({ differ: 0, undecided: [] });
  },
);
