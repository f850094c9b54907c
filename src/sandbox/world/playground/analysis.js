import { ABOVE, element, figure, figureOf, HEIGHT, LEFT, text, WIDTH } from "./chart/chart.js";

/** The chart of each measure has this title, and these labels and figures. */
const CHARTS = {
  flow: ["Posts by hour of the day (UTC)", ({ hours }) => hours.map((count, hour) => [`${hour}:00`, count])],
  clout: [
    "Reach",
    ({ reach_per_post, median_reach, h_index }) => [
      ["a post", reach_per_post],
      ["median", median_reach],
      ["h-index", h_index],
    ],
  ],
  kudos: ["Reactions", ({ likes, shares, replies, quotes }) => Object.entries({ likes, shares, replies, quotes })],
  pulse: [
    "Posts a day",
    ({ baseline_posts_per_day, recent_posts_per_day }) => [
      ["before", baseline_posts_per_day],
      ["lately", recent_posts_per_day],
    ],
  ],
};

/** More bars than these have no room for a figure each, and every sixth has a label. */
const FEW = 6;

/** Draws a bar with its label below, and its figure above if there is room. */
function bar([label, value], at, { bars, most }) {
  const width = WIDTH / bars.length;
  const [left, middle] = [LEFT + at * width, LEFT + (at + 0.5) * width];
  const height = (value / most) * HEIGHT;
  const top = ABOVE + HEIGHT - height;
  const title = element("title", {}, `${label}: ${figureOf(value)}`);
  const rect = element("rect", { x: left + width * 0.1, y: top, width: width * 0.8, height }, title);
  const isFew = bars.length <= FEW;
  return [
    rect,
    ...(isFew ? [text(middle, top - 2, "middle", figureOf(value))] : []),
    ...(isFew || at % FEW === 0 ? [text(middle, ABOVE + HEIGHT + 9, "middle", label)] : []),
  ];
}

function chart(name, measure) {
  const [title, figures] = CHARTS[name];
  const bars = figures(measure).map(([label, value]) => [label, value ?? 0]);
  const most = Math.max(...bars.map(([, value]) => value)) || 1;
  const label = bars.map(([of, value]) => `${of} ${figureOf(value)}`).join(", ");
  return figure(title, { label, most, drawn: bars.flatMap((one, at) => bar(one, at, { bars, most })) });
}

/** Asks for analyses, and shows the newest one and the reward. `ask` gets a function of the viewer's client. */
export function createAnalyses({ status, charts, reward, ask }) {
  let settled = "";
  const showReward = (total) => {
    reward.textContent = `${total} XP`;
  };
  return {
    async order(order) {
      const { analysis_id, status: state } = await ask((client) => client.analyze(order));
      // Its end may be told on the stream before this answer arrives.
      if (analysis_id !== settled) status.textContent = `${order.type} of ${order.did}: ${state}…`;
    },
    async completed({ analysis_id }) {
      settled = analysis_id;
      const { did, type, cached, results } = await ask((client) => client.analysis(analysis_id));
      status.textContent = `${type} of ${did}: ${results.posts} posts${cached ? ", from the cache" : ""}`;
      charts.replaceChildren(
        ...Object.keys(CHARTS).flatMap((name) => (results[name] ? chart(name, results[name]) : [])),
      );
    },
    failed({ analysis_id, error_code }) {
      settled = analysis_id;
      status.textContent = `The analysis failed: ${error_code}`;
    },
    rewarded: ({ total }) => showReward(total),
    /** Shows another user's reward. */
    async open() {
      status.textContent = "";
      charts.replaceChildren();
      showReward((await ask((client) => client.rewards({ limit: 1 }))).total);
    },
  };
}
