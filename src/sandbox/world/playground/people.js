const FOLLOWS_SHOWN = 8;

export const followText = (follows, pending) =>
  pending ? "asks to follow" : follows ? "follows" : "no longer follows";

/**
 * Shows the people that the viewer follows and hides, and those who ask to follow. `otherwise` gets the focus once a
 * button with it is gone.
 */
export function createPeople({ summary, hidden, asking, otherwise, onChange }) {
  let followed = new Set();

  const button = (text, kind, user, undo = true) => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", className: "secondary outline", textContent: `${text} ${user}` });
    made.addEventListener("click", () => onChange(kind, user, undo));
    return made;
  };

  const showButtons = (place, title, buttons) => {
    const focused = place.contains(document.activeElement) ? document.activeElement : undefined;
    place.replaceChildren(title, ...buttons);
    place.hidden = buttons.length === 0;
    if (focused) (buttons.find(({ textContent }) => textContent === focused.textContent) ?? otherwise).focus();
  };

  return {
    follows: (user) => followed.has(user),
    show({ followers, following, follows, suspended }) {
      followed = new Set(follows);
      const more = following > FOLLOWS_SHOWN ? ", …" : "";
      const names = following > 0 ? `: ${follows.slice(0, FOLLOWS_SHOWN).join(", ")}${more}` : "";
      const standing = suspended ? "Suspended: nobody sees its drops, and its stream is refused. " : "";
      summary.textContent = `${standing}${followers} followers, follows ${following}${names}`;
    },
    /** The drops of these users are not on the page, so that their buttons are here. */
    showHidden({ muted, blocked, requests }) {
      showButtons(hidden, "Muted and blocked:", [
        ...muted.map((user) => button("Unmute", "mutes", user)),
        ...blocked.map((user) => button("Unblock", "blocks", user)),
      ]);
      const answers = (user) => [button("Accept", "followers", user, false), button("Reject", "followers", user)];
      showButtons(asking, "Asked to follow:", requests.flatMap(answers));
    },
  };
}
