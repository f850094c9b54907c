const LATE_MS = 3_000;

/** A tab whose stream takes the last connection gets no answer, and no error. */
const WAITING =
  "No answer yet. A browser has six connections to a server, and each tab of this page keeps one or two: close a tab.";

/** Returns the response; until it comes, `message` says why there may be none. */
export async function answered(message, response) {
  const late = setTimeout(() => {
    message.textContent = WAITING;
  }, LATE_MS);
  try {
    return await response;
  } finally {
    clearTimeout(late);
    if (message.textContent === WAITING) message.textContent = "";
  }
}
