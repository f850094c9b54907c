/** An operator suspends accounts, and lifts that again. `changed` is called after each. */
export function createStandings({ list, call, attempt, changed }) {
  const set = async (user, standing) => {
    await call("PUT", "/world/standings", { user_id: user, standing });
    await look();
    await changed();
  };

  const lineOf = ({ user_id, reason }) => {
    const line = Object.assign(document.createElement("li"), { className: "row" });
    const lift = document.createElement("button");
    Object.assign(lift, { type: "button", className: "secondary outline", textContent: `Lift ${user_id}` });
    lift.addEventListener("click", () => attempt(() => set(user_id, "active")));
    line.append(`${user_id} is suspended: ${reason} `, lift);
    return line;
  };

  async function look() {
    const { suspended } = await call("GET", "/world/standings");
    list.replaceChildren(...suspended.map(lineOf));
  }

  return { look, suspend: ({ user }) => set(user, "suspended") };
}
