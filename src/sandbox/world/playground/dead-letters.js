const LOOK_MS = 3_000;

/** Events that could not be handled, by their error; one button publishes all of them again. */
export function watchDeadLetters({ count, list, redrive, call, attempt, done }) {
  function show(letters) {
    const byError = Map.groupBy(letters, ({ reason, event, error }) => `${error} (${reason} ${event})`);
    const rows = [...byError].map(([what, some]) => {
      const row = document.createElement("li");
      row.textContent = `${some.length} × ${what}`;
      return row;
    });
    count.textContent = letters.length === 0 ? "None." : `${letters.length} in the stream DLQ:`;
    list.replaceChildren(...rows);
    redrive.hidden = letters.length === 0;
  }

  async function look() {
    show((await call("GET", "/world/dead-letters")).dead_letters);
  }

  redrive.addEventListener("click", () =>
    attempt(async () => {
      const { redriven = [], refused = [], failed = [] } = await call("POST", "/world/dead-letters/redrive");
      done(`${redriven.length} redriven, ${refused.length} refused, ${failed.length} failed.`);
      await look();
    }),
  );
  // While the worker is away nobody answers: the next look does.
  setInterval(() => document.visibilityState === "visible" && look().catch(() => undefined), LOOK_MS);
  return { look: () => look().catch(() => undefined) };
}
