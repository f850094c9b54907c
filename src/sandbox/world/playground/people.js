const FOLLOWS_SHOWN = 8;

/** Shows the people that the viewer follows and hides. `otherwise` gets the focus once a button with it is gone. */
export function createPeople({ summary, hidden, otherwise, onShow }) {
  let followed = new Set();

  const button = (text, kind, user) => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", className: "secondary outline", textContent: `${text} ${user}` });
    made.addEventListener("click", () => onShow(kind, user));
    return made;
  };

  return {
    follows: (user) => followed.has(user),
    show({ followers, following, follows }) {
      followed = new Set(follows);
      const more = following > FOLLOWS_SHOWN ? ", …" : "";
      const names = following > 0 ? `: ${follows.slice(0, FOLLOWS_SHOWN).join(", ")}${more}` : "";
      summary.textContent = `${followers} followers, follows ${following}${names}`;
    },
    /** The drops of these users are not on the page, so that their buttons are here. */
    showHidden({ muted, blocked }) {
      const buttons = [
        ...muted.map((user) => button("Unmute", "mutes", user)),
        ...blocked.map((user) => button("Unblock", "blocks", user)),
      ];
      const focused = hidden.contains(document.activeElement) ? document.activeElement : undefined;
      hidden.replaceChildren("Muted and blocked:", ...buttons);
      hidden.hidden = buttons.length === 0;
      if (focused) (buttons.find(({ textContent }) => textContent === focused.textContent) ?? otherwise).focus();
    },
  };
}
