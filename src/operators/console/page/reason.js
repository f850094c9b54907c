import { byId } from "./dom.js";

const dialog = byId("act");
const form = byId("act-form");

/** Asks whether to do it, and why. Resolves to the reason, which may be empty unless it is needed; undefined: no. */
export function askReason({ title, verb, isNeeded }) {
  byId("act-title").textContent = title;
  byId("act-yes").textContent = verb;
  byId("act-yes").className = isNeeded ? "danger" : "";
  form.reset();
  form.elements.why.required = isNeeded;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const why = () => (dialog.returnValue === "yes" ? form.elements.why.value.trim() : undefined);
    dialog.addEventListener("close", () => resolve(why()), { once: true });
  });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  dialog.close("yes");
});
byId("act-no").addEventListener("click", () => dialog.close());
