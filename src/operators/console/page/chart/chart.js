const SVG = "http://www.w3.org/2000/svg";

/** The plot and the room for the labels of its axes, in units of the drawing. */
export const [WIDTH, HEIGHT, LEFT, BELOW, ABOVE] = [200, 60, 30, 12, 10];
const BOTTOM = ABOVE + HEIGHT;

export function element(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export const figureOf = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });

export const text = (x, y, anchor, words) => element("text", { x, y, "text-anchor": anchor }, words);

/** Draws what is given on axes from 0 to `most`. Who cannot see it gets the label. */
export function figure(title, { label, most, drawn }) {
  const axes = [
    element("path", { d: `M${LEFT} ${ABOVE}V${BOTTOM}H${LEFT + WIDTH}` }),
    text(LEFT - 3, BOTTOM, "end", "0"),
    text(LEFT - 3, ABOVE + 5, "end", figureOf(most)),
  ];
  const box = { viewBox: `0 0 ${LEFT + WIDTH} ${BOTTOM + BELOW}`, role: "img", "aria-label": `${title}: ${label}` };
  const made = document.createElement("figure");
  const caption = document.createElement("figcaption");
  caption.textContent = title;
  made.append(caption, element("svg", box, ...axes, ...drawn));
  return made;
}

const agoOf = (ms) => (ms < 120_000 ? `${Math.round(ms / 1_000)} s ago` : `${Math.round(ms / 60_000)} min ago`);

/** Draws a curve of points `[ms, value]`, the oldest first; it has at least one. */
export function curve(title, points, unit = "") {
  const values = points.map(([, value]) => value);
  const most = Math.max(...values) || 1;
  const [[from], [until]] = [points[0], points.at(-1)];
  const xOf = (at) => LEFT + WIDTH * (until === from ? 1 : (at - from) / (until - from));
  const d = points.map(([at, value]) => `${xOf(at).toFixed(1)} ${(BOTTOM - (value / most) * HEIGHT).toFixed(1)}`);
  const now = values.at(-1);
  return figure(`${title}: ${figureOf(now)}${unit}`, {
    label: `now ${figureOf(now)}${unit}, at most ${figureOf(Math.max(...values))}${unit}`,
    most,
    drawn: [
      element("path", { class: "curve", d: `M${d.join("L")}` }),
      text(LEFT, BOTTOM + 9, "start", agoOf(until - from)),
      text(LEFT + WIDTH, BOTTOM + 9, "end", "now"),
    ],
  });
}
