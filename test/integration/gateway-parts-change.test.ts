import { beforeEach, expect, test } from "@jest/globals";
import { notifySubject } from "../../src/contracts/subjects.js";
import { silent } from "../../src/kernel/logger.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { eventually } from "../support/eventually.js";
import { connection, listen, names, type Raw, type Running, start } from "../support/gateway.js";

const USERS = names("user-", 16);
const DROPS_A_ROUND = 12;

const declare = async (notifyParts: number): Promise<void> =>
  applyTopology(await connection.jetstreamManager(), { replicas: 1, notifyParts }, silent);

/** The homes, as fan-out stores a drop there before it notifies anybody. */
const homes = new Map(USERS.map((user) => [user, new Set<string>()]));

beforeEach(() => {
  for (const home of homes.values()) home.clear();
});

let publication = 0;

/** A fan-out process with this number of parts. */
function publisherWith(notifyParts: number) {
  const { publish } = createPublisher(connection, { notifyParts });
  return async (user: string, drop: string): Promise<void> => {
    homes.get(user)?.add(drop);
    const body = JSON.stringify({ event: "new_drop", drop_id: drop, created_at: 1 });
    await publish({ subject: notifySubject(user), id: `${publication++}`, body });
  };
}

type Publisher = ReturnType<typeof publisherWith>;

/** An app: it shows the events, and reads its home again when it gets a reset. */
class App {
  readonly shown = new Set<string>();
  resets = 0;
  #raw: Raw | undefined;
  #connecting = Promise.resolve();

  constructor(readonly user: string) {}

  connect(gateway: Running): Promise<void> {
    this.#connecting = this.#connecting.then(() => this.#connect(gateway));
    return this.#connecting;
  }

  async #connect(gateway: Running): Promise<void> {
    const before = this.#raw?.lastId;
    await this.#raw?.goes();
    this.#raw = await listen(gateway, this.user, before);
    const raw = this.#raw;
    let read = 0;
    const take = (): void => {
      for (const { event, data } of raw.events.slice(read)) {
        if (event === "reset") this.#readHome();
        else this.shown.add(String(data.drop_id));
      }
      read = raw.events.length;
    };
    // It comes after the one that parses the events.
    raw.response.on("data", take);
    take();
  }

  #readHome(): void {
    this.resets++;
    for (const drop of homes.get(this.user) ?? []) this.shown.add(drop);
  }

  /** Returns the drops that it does not show, and whether its stream has ended. */
  missing(): string[] {
    const stream = this.#raw?.ended ? "ended" : "open";
    const missing = [...(homes.get(this.user) ?? [])].filter((drop) => !this.shown.has(drop));
    return missing.map((drop) => `${this.user} lacks ${drop}, its stream is ${stream}, ${this.resets} resets`);
  }
}

interface Round {
  readonly name: string;
  readonly publishers: readonly number[];
  readonly gateways: readonly number[];
}

/** Publishes to everybody from each process, while half of the apps come back at another gateway. */
async function load(round: Round, apps: readonly App[], gatewayWith: (parts: number) => Promise<Running>) {
  const publishers = round.publishers.map(publisherWith);
  const gateways = await Promise.all(round.gateways.map(gatewayWith));
  const moving = apps.map(async (app, at) => {
    if (at % 2 === 0) await app.connect(gateways[at % gateways.length] as Running);
  });
  for (let count = 0; count < DROPS_A_ROUND; count++) {
    const publish = publishers[count % publishers.length] as Publisher;
    await Promise.all(USERS.map((user) => publish(user, `${round.name}-${count}`)));
    await apps[(3 * count) % apps.length]?.connect(gateways[count % gateways.length] as Running);
  }
  await Promise.all(moving);
}

const ROUNDS: Readonly<Record<string, readonly Round[]>> = {
  "fan-out first, to four parts and back": [
    { name: "a", publishers: [1, 1], gateways: [1, 1] },
    { name: "b", publishers: [4, 1], gateways: [1, 1] },
    { name: "c", publishers: [4, 4], gateways: [1, 4] },
    { name: "d", publishers: [4, 4], gateways: [4, 4] },
    { name: "e", publishers: [1, 4], gateways: [4, 4] },
    { name: "f", publishers: [1, 1], gateways: [1, 4] },
    { name: "g", publishers: [1, 1], gateways: [1, 1] },
  ],
  "gateways first, from two parts to eight": [
    { name: "a", publishers: [2, 2], gateways: [2, 2] },
    { name: "b", publishers: [2, 2], gateways: [8, 2] },
    { name: "c", publishers: [2, 8], gateways: [8, 8] },
    { name: "d", publishers: [8, 8], gateways: [8, 8] },
  ],
  "both in one process, one process after the other": [
    { name: "a", publishers: [1, 1], gateways: [1, 1] },
    { name: "b", publishers: [4, 1], gateways: [4, 1] },
    { name: "c", publishers: [4, 4], gateways: [4, 4] },
  ],
  "a change that is taken back at once": [
    { name: "a", publishers: [1, 1], gateways: [1, 1] },
    { name: "b", publishers: [4, 1], gateways: [1, 1] },
    { name: "c", publishers: [1, 1], gateways: [1, 1] },
  ],
};

// Invariant 7.
test.each(Object.entries(ROUNDS))(
  "events and homes together lack nothing: %s",
  async (_, rounds) => {
    for (const count of [1, 2, 4, 8]) await declare(count);
    const running = new Map<number, Promise<Running>>();
    // Two gateways with one number differ in nothing that an app can see.
    const gatewayWith = (parts: number): Promise<Running> => {
      const one = running.get(parts) ?? start({ notifyParts: parts });
      running.set(parts, one);
      return one;
    };
    const apps = USERS.map((user) => new App(user));
    const first = await gatewayWith(rounds[0]?.gateways[0] as number);
    await Promise.all(apps.map((app) => app.connect(first)));
    for (const round of rounds) await load(round, apps, gatewayWith);
    const last = await gatewayWith(rounds.at(-1)?.gateways[0] as number);
    const missing = () => apps.flatMap((app) => app.missing()).join(", ");
    await eventually(() => missing() || true, "every app shows its home");
    expect(apps.some(({ resets }) => resets > 0)).toBe(true);
    // Afterwards everything is as with one number.
    await Promise.all(apps.map((app) => app.connect(last)));
    const publish = publisherWith(rounds.at(-1)?.publishers[0] as number);
    for (const user of USERS) await publish(user, "last");
    await eventually(() => apps.every((app) => app.shown.has("last")), "everybody gets the last one");
  },
  120_000,
);
