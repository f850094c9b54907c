import { useToken } from "./call.js";
import { createDeadLetters } from "./dead-letters.js";
import { byId } from "./dom.js";
import { explain } from "./explain.js";
import * as overview from "./overview.js";
import * as records from "./records.js";

let isOpen = false;

function showError(error) {
  byId("message").textContent = error.message;
  // The token has expired.
  if (error.status === 401) showSignIn();
}

async function attempt(action) {
  byId("message").textContent = "";
  byId("done").textContent = "";
  try {
    await action();
  } catch (error) {
    showError(error);
  }
}

const deadLetters = createDeadLetters({
  attempt,
  done: (text) => {
    byId("done").textContent = text;
  },
});

/** Each view is a section, which reads its data when it is shown. */
const VIEWS = {
  overview: overview.look,
  "dead-letters": deadLetters.look,
  explain: async () => undefined,
  records: records.look,
};

const chosen = () => (Object.hasOwn(VIEWS, location.hash.slice(1)) ? location.hash.slice(1) : "overview");

async function showView() {
  const view = chosen();
  for (const name of Object.keys(VIEWS)) byId(name).hidden = name !== view || !isOpen;
  for (const link of byId("views").querySelectorAll("a"))
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  if (!isOpen) return;
  byId(`${view}-title`).focus({ preventScroll: true });
  await VIEWS[view]();
}

function showSignIn() {
  isOpen = false;
  byId("sign-in").hidden = false;
  byId("views").hidden = true;
  showView();
  byId("sign-in").elements.token.focus();
}

async function signIn({ token }) {
  useToken(token);
  // A token that is refused leaves the form there.
  await overview.look();
  isOpen = true;
  byId("sign-in").reset();
  byId("sign-in").hidden = true;
  byId("views").hidden = false;
  await showView();
}

function onSubmit(form, act) {
  byId(form).addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => act(Object.fromEntries(new FormData(event.target))));
  });
}

onSubmit("sign-in", signIn);
onSubmit("explain-form", explain);
onSubmit("look-up", records.lookUp);
onSubmit("standing-form", records.setStanding);
addEventListener("hashchange", () => {
  // The link that skips to the content is no view.
  if (location.hash !== "#content") attempt(showView);
});
overview.watch({
  isShown: () => isOpen && chosen() === "overview",
  seen: () => byId("message").replaceChildren(),
  failed: showError,
});
byId("sign-in").elements.token.focus();
