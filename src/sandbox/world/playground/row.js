/** Each button of a row that makes or undoes something: where the drop says whether it is made, and on what it acts. */
export const CHANGES = {
  likes: { state: "liked", texts: ["Like", "Unlike"], target: (drop) => `drop ${originalOf(drop)}` },
  shares: { state: "shared", texts: ["Repost", "Undo repost"], target: (drop) => `of drop ${originalOf(drop)}` },
  mutes: { state: "muting", texts: ["Mute", "Unmute"], target: ({ author }) => author },
  blocks: { state: "blocking", texts: ["Block", "Unblock"], target: ({ author }) => author },
};

/** Each button of a row that does one thing. */
export const ACTS = {
  replies: { text: "Reply", isFor: ({ author }) => author },
  thread: { text: "Thread", isFor: ({ author }) => author },
  edit: { text: "Edit", isFor: ({ author }) => author },
  delete: { text: "Delete", isFor: () => true },
};

export const originalOf = ({ drop_id, repost_of }) => repost_of || drop_id;

const counted = (count, one, many) => (count > 0 ? [`${count} ${count === 1 ? one : many}`] : []);

const stateOf = ({ likes, shares, replies, revision }) =>
  [
    ...counted(likes, "like", "likes"),
    ...counted(shares, "repost", "reposts"),
    ...counted(replies, "reply", "replies"),
    ...(revision > 1 ? ["edited"] : []),
  ].join(" · ");

function linkTo({ url, description }) {
  const link = document.createElement("a");
  Object.assign(link, { href: url, textContent: description || url, rel: "noopener noreferrer", target: "_blank" });
  const item = document.createElement("li");
  item.append(link);
  return item;
}

const LIST = new Intl.ListFormat("en");

/** Shows a drop in a row that was made from the template. */
export function draw(row, drop) {
  const { drop_id, author, body, visibility, reposted_by, reply_to, answers, attachments = [] } = drop;
  // A page names those whose reposts it leaves out, too.
  const { reposters = reposted_by ? [reposted_by] : [] } = drop;
  const show = (name, text) => {
    row.querySelector(`.${name}`).textContent = text;
  };
  row.querySelector(".repost").hidden = reposters.length === 0;
  row.querySelector(".answer").hidden = !reply_to;
  show("reposters", LIST.format(reposters));
  show("answered", answers ?? "a drop that is not shown");
  show("author", author || "(unknown author)");
  show("body", body ?? "");
  show("state", stateOf(drop));
  show("id", visibility ? `${drop_id} · ${visibility}` : drop_id);
  row.querySelector(".files").replaceChildren(...attachments.map(linkTo));
  for (const [name, { state, texts, target }] of Object.entries(CHANGES)) {
    const button = row.querySelector(`[name=${name}]`);
    button.hidden = drop[state] === undefined;
    button.textContent = texts[Number(drop[state] ?? false)];
    button.setAttribute("aria-label", `${button.textContent} ${target(drop)}`);
  }
  for (const [name, { text, isFor }] of Object.entries(ACTS)) {
    const button = row.querySelector(`[name=${name}]`);
    button.hidden = !isFor(drop);
    button.textContent = text;
    button.setAttribute("aria-label", `${text} drop ${drop_id}`);
  }
}

/** Shows the thread of a drop in its row, each reply further in than what it answers; without drops, no thread. */
export function drawThread(row, current, drops = []) {
  const lines = drops.map(({ drop_id, author, body, deleted, depth }) => {
    const line = document.createElement("li");
    line.textContent = deleted ? "(deleted)" : `${author}: ${body}`;
    line.style.marginInlineStart = `${depth}rem`;
    if (drop_id === current) line.setAttribute("aria-current", "true");
    return line;
  });
  row.querySelector(".thread").replaceChildren(...lines);
}
