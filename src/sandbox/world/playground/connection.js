import { TimelineClient } from "./client/index.js";

/**
 * Connects the page as its viewer. `session` resolves to a new token of a user, `read` reads the page; `homeActs` and
 * `shownActs` have a function for each event of the home, and of another timeline that is shown.
 */
export function createConnection({ session, read, homeActs, shownActs, log, attempt, showStatus, showError }) {
  let [client, home, shown] = [];

  /** The page is read at every opening, not only the first, since what was missed may be gone. */
  function listen(name, { acts, options, opened, down, ended = showError }) {
    const stream = client.stream(name, options);
    const mark = name === "home" ? "" : ` (${name.split(":")[0]})`;
    stream.on("open", () => {
      log(`open${mark}`, "", "", "");
      opened?.();
      attempt(read);
    });
    stream.on("down", ({ error }) => {
      log(`closed${mark}`, "", "", error.message);
      down?.();
    });
    stream.on("closed", ({ error }) => error && ended(error));
    for (const [event, act] of Object.entries(acts))
      stream.on(event, ({ data, id }) => {
        const after = data.created_at === undefined ? "" : `${Date.now() - data.created_at} ms`;
        log(`${event}${mark}`, after, id, JSON.stringify(data));
        attempt(() => act(data));
      });
    return stream;
  }

  return {
    client: () => client,
    /** Tabs of one browser show different users, so each has its own token. */
    open(user, token) {
      for (const stream of [home, shown]) stream?.close();
      let current = token;
      const renew = async (refused) => {
        if (refused === current) ({ token: current } = await session(user));
        return current;
      };
      client = new TimelineClient({ token: renew });
      showStatus("connecting", "connecting…");
      home = listen("home", {
        acts: homeActs,
        options: { storage: sessionStorage, storageKey: `home of ${user}` },
        opened: () => showStatus("live", `live as ${user}`),
        down: () => showStatus("down", "connection lost, trying again…"),
        ended: (error) => {
          showStatus("down", "not connected");
          showError(error);
        },
      });
    },
    /** Follows a timeline while it is shown. Its stream resumes nothing: the page is read when it opens. */
    show(name) {
      shown?.close();
      const isElsewhere = name === undefined || name === "home" || name === "notifications";
      shown = isElsewhere ? undefined : listen(name, { acts: shownActs });
    },
  };
}
