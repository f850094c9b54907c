import { TimelineClient } from "./client/index.js";

/**
 * Opens the viewer's stream, and returns it with the client. Tabs of one browser show different users, so each has its own
 * token. `session` resolves to a new one; `opened` is called at every opening, not only the first, since what was missed may
 * be gone; `acts` has a function for each event.
 */
export function connect({ user, token, session, log, showStatus, showError, opened, acts }) {
  let current = token;
  const renew = async (refused) => {
    if (refused === current) ({ token: current } = await session(user));
    return current;
  };
  const client = new TimelineClient({ token: renew });
  const stream = client.stream("home", { storage: sessionStorage, storageKey: `home of ${user}` });
  showStatus("connecting", "connecting…");
  stream.on("open", () => {
    log("open", "", "", "");
    showStatus("live", `live as ${user}`);
    opened();
  });
  stream.on("down", ({ error }) => {
    log("closed", "", "", error.message);
    showStatus("down", "connection lost, trying again…");
  });
  stream.on("closed", ({ error }) => {
    if (error === undefined) return;
    showStatus("down", "not connected");
    showError(error);
  });
  for (const [name, act] of Object.entries(acts))
    stream.on(name, ({ event, data, id }) => {
      const after = data.created_at === undefined ? "" : `${Date.now() - data.created_at} ms`;
      log(event, after, id, JSON.stringify(data));
      act(data);
    });
  return { client, stream };
}
