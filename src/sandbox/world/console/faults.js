/** The reader breaks the upstreams, and heals them. */
export function createFaults({ status, call }) {
  let broken = [];

  async function change(method, body) {
    const { faults } = await call(method, "/world/faults", body);
    broken = faults.map(({ service, method, userId }) => [service, method, userId].filter(Boolean).join(" "));
    status.textContent = broken.length === 0 ? "No service is broken." : `Broken: ${broken.join(", ")}`;
  }

  return {
    isBroken: () => broken.length > 0,
    look: () => change("GET"),
    heal: () => change("DELETE"),
    breakUsers: () => change("POST", { service: "users", code: "UNAVAILABLE" }),
    refuseFollowersOf: (author) =>
      change("POST", { service: "users", method: "GetFollowersList", user_id: author, code: "INTERNAL" }),
  };
}
