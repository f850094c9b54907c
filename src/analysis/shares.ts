/** A user may hold as many places as are free, and one where any is free: one alone takes half of them. */
export function createShares(most: number) {
  const held = new Map<string, number>();
  let taken = 0;
  return {
    get taken(): number {
      return taken;
    },
    /** Returns undefined where the user has to wait, otherwise a function that gives the place back. */
    take(user: string): (() => void) | undefined {
      const mine = held.get(user) ?? 0;
      if (taken >= most || (mine > 0 && mine >= most - taken)) return undefined;
      taken++;
      held.set(user, mine + 1);
      return () => {
        taken--;
        const left = (held.get(user) as number) - 1;
        if (left === 0) held.delete(user);
        else held.set(user, left);
      };
    },
  };
}
