/** Posts drops by a form, and remembers which drop the next one answers. */
export function createWriting({ form, answering, call, done, shown, isFollowed, isBroken }) {
  let parent;
  const [text, button] = answering.children;

  function answer(drop) {
    parent = drop;
    answering.hidden = drop === undefined;
    text.textContent = drop === undefined ? "" : `Answers ${drop.author}: ${drop.body}`;
    if (drop !== undefined) form.elements.body.focus();
  }

  /** Says why a drop that was posted is not on the page at once. */
  function whyNotHere(author, visibility) {
    const { viewer, view } = shown();
    const isShared = view === "local" || view === "global";
    if (isShared && visibility !== "public") return ` ${view} has public drops only.`;
    if (view !== "home" || author === viewer || visibility === "direct")
      return !isBroken() ? "" : " It waits until what is broken is healed.";
    if (!isFollowed(author)) return ` ${viewer} does not follow ${author}: it does not come to this home.`;
    return !isBroken() ? "" : " It waits until what is broken is healed, or becomes a dead letter.";
  }

  button.addEventListener("click", () => answer(undefined));
  return {
    answer,
    async post({ author, visibility, body, attachment }, count) {
      const { viewer } = shown();
      const many = Number(count ?? 1);
      // Nobody but the viewer is at hand as a recipient.
      const recipients = visibility === "direct" && author !== viewer ? [viewer] : [];
      const reply_to = parent?.repost_of || parent?.drop_id;
      const asked = { user: author, visibility, recipients, body, attachment, reply_to, count: many };
      const { drops, stopped } = await call("POST", "/world/drops", asked);
      answer(undefined);
      const posted = stopped ? `${drops.length} of ${many} drops` : many === 1 ? "a drop" : `${many} drops`;
      done(`Posted ${posted} as ${author}.${stopped ? ` ${stopped}.` : ""}${whyNotHere(author, visibility)}`);
    },
  };
}
