import { byId, make } from "./dom.js";

const form = byId("filters");

export const chosenFilters = () => new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));

/** Events and reasons that were seen can be chosen. */
export function offerSeen(groups) {
  for (const name of ["event", "reason"]) {
    const select = form.elements[name];
    const offered = new Set([...select.options].map(({ value }) => value));
    const others = new Set(groups.map((group) => group[name]).filter((value) => !offered.has(value)));
    select.append(...[...others].sort().map((value) => make("option", { value, textContent: value })));
  }
}

export function onFilter(look) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    look();
  });
}
