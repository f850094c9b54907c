/** Names what was probably meant, to be put behind a complaint; "" where nothing is near. */
export function suggestion(name: string, known: Iterable<string>): string {
  const near = [...known].find((candidate) => distance(candidate, name) <= 2);
  return near ? ` (did you mean ${near}?)` : "";
}

/** Levenshtein distance, by the two-row algorithm of Wagner and Fischer (1974). */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min((row[j] as number) + 1, (next[j - 1] as number) + 1, swap));
    }
    row = next;
  }
  return row[b.length] as number;
}
