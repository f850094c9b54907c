/** A worker does not ask again for followers that it knows. */
const hintOf = (faults) =>
  faults.some(({ userId }) => userId)
    ? "Workers still know the followers of who has just posted, until somebody follows or unfollows them."
    : "";

/** The reader breaks the upstreams, and heals them. */
export function createFaults({ status, call }) {
  let broken = [];

  async function change(method, body) {
    const { faults } = await call(method, "/world/faults", body);
    broken = faults.map(({ service, method, userId }) => [service, method, userId].filter(Boolean).join(" "));
    status.textContent =
      broken.length === 0 ? "No service is broken." : `Broken: ${broken.join(", ")}. ${hintOf(faults)}`;
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
