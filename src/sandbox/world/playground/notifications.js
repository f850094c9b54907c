const SHOWN = 30;

const TEXTS = {
  FOLLOW: "follows you",
  FOLLOW_REQUEST: "asks to follow you",
  LIKE: "likes your drop",
  REPOST: "reposted your drop",
  REPLY: "answers your drop",
  MENTION: "mentions you",
};

function rowOf({ kind, actor_id, created_at }, body, isUnread) {
  const [row, actor, text, time] = ["li", "span", "span", "time"].map((name) => document.createElement(name));
  Object.assign(actor, { className: "author", textContent: actor_id });
  text.textContent = ` ${TEXTS[kind] ?? kind}${body ? `: ${body}` : ""} `;
  const date = new Date(created_at);
  Object.assign(time, { dateTime: date.toISOString(), textContent: date.toLocaleString() });
  row.classList.toggle("fresh", isUnread);
  row.append(actor, text, time);
  return row;
}

/**
 * Shows the notifications of the viewer, and on their tab how many are unread. `ask` gets a function of the viewer's
 * client, `look` resolves to a drop as the viewer sees it, if there is one.
 */
export function createNotifications({ byId, ask, look }) {
  const [list, tab, empty] = ["notifications", "unread", "empty"].map(byId);
  const count = async () => {
    const { count: unread } = await ask((client) => client.unread());
    tab.textContent = unread === 0 ? "Notifications" : `Notifications (${unread})`;
    return unread;
  };

  /** Shows the newest notifications and marks them as read. */
  async function show() {
    const unread = await count();
    const { notifications } = await ask((client) => client.notifications({ limit: SHOWN }));
    const drops = await Promise.all(notifications.map(({ drop_id }) => drop_id && look(drop_id)));
    list.replaceChildren(...notifications.map((each, at) => rowOf(each, drops[at]?.body, at < unread)));
    empty.hidden = notifications.length > 0;
    if (unread === 0) return;
    await ask((client) => client.markRead(notifications[0].id));
    await count();
  }

  return {
    show,
    count,
    /** Something came, or was read in another tab. */
    changed: () => (list.hidden ? count() : show()),
  };
}
