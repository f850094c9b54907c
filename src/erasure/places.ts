import type { Place } from "../contracts/people.js";
import { printable } from "../kernel/errors.js";

export function createPlaces() {
  const places = new Map<string, Place>();
  return {
    add(place: Place): void {
      if (place.count === 0) return;
      const name = JSON.stringify([place.server, place.place, place.why]);
      const known = places.get(name);
      places.set(name, known ? { ...known, count: known.count + place.count } : place);
    },
    /** Returns all places, those that may not stay first. */
    all: (): Place[] => [...places.values()].sort((a, b) => Number(a.mayStay) - Number(b.mayStay)),
  };
}

export type Places = ReturnType<typeof createPlaces>;

export const isLeft = (places: readonly Place[]): boolean => places.some(({ mayStay }) => !mayStay);

export function placesAsText(user: string, places: readonly Place[]): string {
  const lines = places.map(({ server, place, example, count, mayStay, why }) => {
    const where = example === undefined ? place : `${place} (${example})`;
    return printable(`${mayStay ? "may stay" : "LEFT    "}  ${server}  ${where}  ${count}  ${why}`);
  });
  const remaining = places.filter(({ mayStay }) => !mayStay).length;
  const end =
    remaining === 0
      ? "is named only where it may be"
      : `is left in ${remaining} ${remaining === 1 ? "place" : "places"}`;
  return [...lines, printable(`${JSON.stringify(user)} ${end}`)].join("\n");
}
