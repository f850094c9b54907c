/** Makes lists of the viewer, and changes their members. `changed` is called when the shown list has other members. */
export function createLists({ byId, call, attempt, viewer, changeView, changed }) {
  const [choice, members] = ["list", "members"].map(byId);
  const chosen = () => changeView("list");
  // Lists are read after a change of the viewer: until then nobody has one.
  let [lists, owner] = [[], ""];

  const shown = () => (owner === viewer() ? lists.find(({ list_id }) => list_id === choice.value) : undefined);

  function show() {
    const { members: names } = shown() ?? {};
    members.textContent = names === undefined ? "No list yet." : `Members: ${names.join(", ") || "none"}`;
  }

  async function look(wanted = choice.value) {
    const user_id = viewer();
    const answer = await call("GET", `/world/lists?${new URLSearchParams({ user_id })}`);
    if (user_id !== viewer()) return;
    [lists, owner] = [answer.lists, user_id];
    choice.replaceChildren(...lists.map(({ list_id, title }) => new Option(title, list_id)));
    if (lists.some(({ list_id }) => list_id === wanted)) choice.value = wanted;
    show();
  }

  choice.addEventListener("change", () => attempt(chosen));

  return {
    look,
    /** Returns the name of the shown list's timeline; undefined if the viewer has no list. */
    timeline: () => shown() && `list:${choice.value}`,
    async make({ title }) {
      const { list_id } = await call("POST", "/world/lists", { user_id: viewer(), title });
      await look(list_id);
      await chosen();
    },
    async change({ member: member_id }, method) {
      await call(method, "/world/members", { user_id: viewer(), list_id: choice.value, member_id });
      await look();
      changed();
    },
  };
}
