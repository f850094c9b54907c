/** A user may hold as many places as are free, and the first one while any is free: a single user takes half of them. */
export function createShares(most: number) {
  const placesOf = new Map<string, number>();
  let taken = 0;
  return {
    get taken(): number {
      return taken;
    },
    /** Returns undefined if the user has to wait, otherwise a function that gives the place back. */
    take(user: string): (() => void) | undefined {
      const mine = placesOf.get(user) ?? 0;
      if (taken >= most || (mine > 0 && mine >= most - taken)) return undefined;
      taken++;
      placesOf.set(user, mine + 1);
      return () => {
        taken--;
        const remaining = (placesOf.get(user) as number) - 1;
        if (remaining === 0) placesOf.delete(user);
        else placesOf.set(user, remaining);
      };
    },
  };
}
