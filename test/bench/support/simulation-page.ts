import { above } from "./population.js";
import { PUBLISHED, SOURCES } from "./published.js";
import { DEFAULT_THRESHOLD, type Scene } from "./scene.js";
import { breakEven, bytesOf, coresOf, type RedisCosts, type Strategy } from "./strategies.js";
import { plain, short, tableOf } from "./tables.js";
import type { UnitCosts } from "./unit-costs.js";

/** Drops by followers as published, or the same for everybody. */
type Scenes = Readonly<Record<"by followers" | "alike", Scene>>;

interface Page {
  readonly scenes: Scenes;
  readonly costs: UnitCosts;
  readonly seed: number;
}

const READ_SHARES = [1, 0.1];
const FORMS = { server: "one server", cluster: "Cluster" } as const;
type Form = keyof typeof FORMS;

const redisOf = (costs: UnitCosts, form: Form): RedisCosts => {
  const { entry, page, author } = costs[form];
  return { entry: entry.value, page: page.value, author: author.value };
};

export function pageOf({ scenes, costs, seed }: Page): string {
  const { population } = scenes["by followers"];
  return `# Simulation: push, pull and what lies between

\`npm run bench -- simulation\` writes this page. It draws ${short(population.users)} users with the seed ${seed}, and 50,000 readers with all whom they follow. An author
with more followers than the threshold, \`TIMELINE_FANOUT_PULL_THRESHOLD\`, is pulled: a drop is written once, and each page merges it. Other
authors are pushed: a drop is written into the home of each follower. The threshold is 0 for pull, \`off\` for push.

![CPU of Redis by threshold](simulation.svg)

## The model and the published figures

Figures without a model are given to it.

${tableOf(["Figure", "Published", "Model", "Source"], modelRows(scenes))}

Drops rise with the followers of their author up to 1,800 followers, are scaled to the published total, and deviate log-normally. Followings
are log-normal. Readers who follow more read more often. With "alike" every author who posts does so at the same rate.

Two figures differ. Another source has a mean of 208 followers (Beevolve, 36 M profiles, 2012). A drop reaches ten times as many homes as at
Twitter, since this service also writes to users who are away, and replies count.

Sources: ${Object.values(SOURCES).join("; ")}.

## By threshold

Drops by followers. Entries are homes and authors' timelines written. Merged are authors' timelines that a page needs beside the home: the
mean of reads, then percentiles of readers. Cores are the average CPU of Redis. Longest is the CPU of Redis for the largest fan-out; divide
it by the nodes that write at once.

${tableOf(THRESHOLD_HEAD, thresholdRows(scenes["by followers"], costs))}

The cap trims homes, so pulling saves no memory unless every author is pulled. It adds the readers' sets of pulled authors.

${tableOf(["Threshold", "Homes", "Authors' timelines", "Readers' pulled authors"], memoryRows(scenes["by followers"], costs))}

## The threshold

${tableOf(OPTIMUM_HEAD, optimumRows(scenes, costs))}

${CONCLUSION}
`;
}

function shown(threshold: number): string {
  if (threshold === 0) return "pull";
  return threshold === Number.POSITIVE_INFINITY ? "push" : threshold.toLocaleString("en");
}

function modelRows(scenes: Scenes): string[][] {
  const { population, readers, strategies } = scenes["by followers"];
  const push = strategies.at(-1) as Strategy;
  const alike = scenes.alike.strategies.at(-1) as Strategy;
  const all = above(0, population);
  const row = (name: keyof typeof PUBLISHED, model: string): string[] => {
    const { value, unit, by } = PUBLISHED[name];
    return [unit, plain(value), model, by];
  };
  return [
    row("mean", plain(all.followers / population.users)),
    row("followings", plain(readers.get(0)?.p50 ?? 0)),
    row("millionaires", plain(above(1_000_000, population).authors / population.users)),
    row("most", plain(population.most / population.users)),
    row("topDecile", plain(population.topDecile)),
    row("deliveries", `${plain(push.entriesADrop)}; alike ${plain(alike.entriesADrop)}`),
    ...(["users", "drops", "dropsAtPeak", "reads", "silent", "followersOfSilent", "median"] as const).map((name) =>
      row(name, ""),
    ),
    ...(["percentile96", "percentile99", "tail", "fewPost", "manyPost", "heavyFollowings", "heavyReads"] as const).map(
      (name) => row(name, ""),
    ),
  ];
}

/** The chart shows all thresholds, the tables show these. */
const IN_MEMORY = [Number.POSITIVE_INFINITY, 1_000_000, DEFAULT_THRESHOLD, 100_000, 10_000, 0];
const BY_THRESHOLD = [...IN_MEMORY, 10_000_000, 2_000_000, 300_000, 1_000];

const THRESHOLD_HEAD = [
  ...["Threshold", "Authors pulled", "Entries a drop", "Merged a read", "p50", "p99", "max"],
  ...["Cores, one server's costs", "Cores, a Cluster's", "Longest"],
];

function thresholdRows({ population, strategies }: Scene, costs: UnitCosts): string[][] {
  const some = strategies.filter(({ threshold }) => BY_THRESHOLD.includes(threshold));
  return some.toReversed().map((one) => {
    const cores = (form: Form): string => short(coresOf(one, population.users, redisOf(costs, form)).all);
    const { perRead, p50, p99, max } = one.merged;
    const longest = one.longest === 0 ? "" : `${short((one.longest * costs.server.entry.value) / 1e6)} s`;
    return [
      ...[shown(one.threshold), short(one.pulledAuthors), short(one.entriesADrop), plain(perRead)],
      ...[p50, p99, max].map(short),
      ...[cores("server"), cores("cluster"), longest],
    ];
  });
}

function memoryRows({ population, strategies }: Scene, costs: UnitCosts): string[][] {
  const bytes = { entry: costs.homeEntry.value, pullsMember: costs.pullsMember.value };
  return strategies
    .filter(({ threshold }) => IN_MEMORY.includes(threshold))
    .toReversed()
    .map((one) => {
      const { homes, authors, pulls } = bytesOf(one, population, bytes);
      return [shown(one.threshold), ...[homes, authors, pulls].map((value) => `${short(value / 1e12)} TB`)];
    });
}

const OPTIMUM_HEAD = [
  ...["Rates", "Costs", "Reads", "Least CPU at", "Cores"],
  ...[
    `Cores at ${DEFAULT_THRESHOLD.toLocaleString("en")}`,
    "Of the least",
    "Pulling pays from, drops a day of an author",
  ],
];

function optimumRows(scenes: Scenes, costs: UnitCosts): string[][] {
  return (Object.keys(scenes) as (keyof Scenes)[]).flatMap((rates) =>
    (Object.keys(FORMS) as Form[]).flatMap((form) =>
      READ_SHARES.map((share) => {
        const { population, readers, strategies } = scenes[rates];
        const redis = redisOf(costs, form);
        const cores = (one: Strategy): number => coresOf(one, population.users, redis, share).all;
        const best = strategies.toReversed().toSorted((a, b) => cores(a) - cores(b))[0] as Strategy;
        const usual = cores(strategies.find(({ threshold }) => threshold === DEFAULT_THRESHOLD) as Strategy);
        const reads = share === 1 ? "as published" : `${share} of them`;
        const pays = share * breakEven(population, readers, redis);
        return [
          ...[rates, FORMS[form], reads, shown(best.threshold), short(cores(best)), short(usual)],
          ...[`${plain(usual / cores(best))} x`, short(pays)],
        ];
      }),
    ),
  );
}

const CONCLUSION = `Pushing costs an entry a drop and follower, pulling a merge a read and follower: the followers cancel out. What decides is how often an author
posts for each read of a follower (A. Silberstein et al., Feeding Frenzy, SIGMOD 2010). People read far more often than almost any author
posts, so a threshold saves no CPU of Redis. It bounds the largest fan-out, which delays the homes of its followers and the fan-outs behind
it. The price is the CPU of merging.

- Set the threshold as high as the largest fan-out allows: its seconds of CPU, divided by the nodes and by the share of their CPU that is idle.
- With fewer than 2.5 million users nobody has more than 500,000 followers, and the default pulls nobody.
- At 100,000 the largest fan-out takes a fifth of the time as at the default, and a page merges almost twice as many authors.
- An author who posts more often than the last column says is cheaper to pull, with any number of followers: by hand or by write pressure.
- The tables count no cached pages of authors, which lower the price.`;

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [860, 360, 70, 50];
const SERIES = [
  { what: "writes", colour: "#2a7f4f" },
  { what: "reads", colour: "#b5651d" },
  { what: "all", colour: "#222222" },
] as const;

/** Cores by threshold, with one server's costs; both axes logarithmic. */
export function drawCores({ population, strategies }: Scene, costs: UnitCosts): string {
  const cores = strategies.map((one) => coresOf(one, population.users, redisOf(costs, "server")));
  const values = cores.flatMap(({ writes, reads, all }) => [writes, reads, all]);
  const [low, high] = [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)))];
  const x = (at: number): number => LEFT + (at * (WIDTH - LEFT - 90)) / (strategies.length - 1);
  const y = (value: number): number =>
    HEIGHT - BOTTOM - ((Math.log10(value) - low) * (HEIGHT - BOTTOM - 20)) / (high - low);
  const text = (at: readonly [number, number], words: string, anchor = "middle"): string =>
    `<text x="${Math.round(at[0])}" y="${Math.round(at[1])}" text-anchor="${anchor}" fill="#222222">${words}</text>`;
  const lines = SERIES.map(({ what, colour }) => {
    const points = cores.map((one, at) => `${x(at).toFixed(1)},${y(one[what]).toFixed(1)}`).join(" ");
    const last = cores.at(-1)?.[what] ?? 1;
    return [
      `<polyline points="${points}" fill="none" stroke="${colour}" stroke-width="2"/>`,
      text([x(strategies.length - 1) + 8, y(last) + 4], what, "start"),
    ].join("\n");
  });
  const marks = strategies.map(({ threshold }, at) => {
    const label =
      threshold === 0 ? "pull" : threshold === Number.POSITIVE_INFINITY ? "push" : compact.format(threshold);
    return text([x(at), HEIGHT - BOTTOM + 18], label);
  });
  const grid = Array.from({ length: high - low + 1 }, (_, n) => 10 ** (low + n)).map((value) =>
    [
      `<line x1="${LEFT}" y1="${y(value)}" x2="${WIDTH - 90}" y2="${y(value)}" stroke="#dddddd"/>`,
      text([LEFT - 8, y(value) + 4], String(Number(value.toPrecision(3))), "end"),
    ].join("\n"),
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12">
<title>CPU of Redis in cores by the threshold above which authors are pulled</title>
<rect width="100%" height="100%" fill="#ffffff"/>
${[...grid, ...lines, ...marks].join("\n")}
${text([WIDTH / 2, HEIGHT - 8], `followers above which an author is pulled; cores of Redis for ${short(population.users)} users`)}
</svg>
`;
}

const compact = new Intl.NumberFormat("en", { notation: "compact" });
