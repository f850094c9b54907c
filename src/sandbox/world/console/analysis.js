const SVG = "http://www.w3.org/2000/svg";
const [BAR, HEIGHT] = [10, 48];

/** The chart of each measure shows these labels and figures. */
const BARS = {
  flow: ({ hours }) => hours.map((count, hour) => [`${hour}:00`, count]),
  clout: ({ reach_per_post, median_reach, h_index }) => [
    ["reach a post", reach_per_post],
    ["median reach", median_reach],
    ["h-index", h_index],
  ],
  kudos: ({ likes, shares, replies, quotes }) => Object.entries({ likes, shares, replies, quotes }),
  pulse: ({ baseline_posts_per_day, recent_posts_per_day }) => [
    ["posts a day before", baseline_posts_per_day],
    ["posts a day lately", recent_posts_per_day],
  ],
};

function element(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function chart(name, measure) {
  const bars = BARS[name](measure).map(([label, value]) => [label, value ?? 0]);
  const most = Math.max(...bars.map(([, value]) => value), Number.MIN_VALUE);
  const label = `${name}: ${bars.map(([of, value]) => `${of} ${value}`).join(", ")}`;
  const rects = bars.map(([of, value], at) => {
    const height = Math.max(1, (value / most) * HEIGHT);
    const title = element("title", {}, `${of}: ${value}`);
    return element("rect", { x: at * BAR, y: HEIGHT - height, width: BAR - 2, height }, title);
  });
  const box = { viewBox: `0 0 ${bars.length * BAR} ${HEIGHT}`, role: "img", "aria-label": label };
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  caption.textContent = name;
  figure.append(element("svg", box, ...rects), caption);
  return figure;
}

/** Asks for analyses, and shows the newest one and the reward. `call` talks to the server. */
export function createAnalyses({ status, charts, reward, call }) {
  let settled = "";
  const showReward = (total) => {
    reward.textContent = `${total} XP`;
  };
  return {
    async ask(order) {
      const { analysis_id, status: state } = await call("POST", "/api/v1/timeline/analyze", order);
      // Its end may be told on the stream before this answer arrives.
      if (analysis_id !== settled) status.textContent = `${order.type} of ${order.did}: ${state}…`;
    },
    async completed({ analysis_id, status_url }) {
      settled = analysis_id;
      const { did, type, cached, results } = await call("GET", status_url);
      status.textContent = `${type} of ${did}: ${results.posts} posts${cached ? ", from the cache" : ""}`;
      charts.replaceChildren(...Object.keys(BARS).flatMap((name) => (results[name] ? chart(name, results[name]) : [])));
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
      showReward((await call("GET", "/api/v1/xp?limit=1")).total);
    },
  };
}
