/** Readers never change whom they follow after the initial follows. */
export const READERS = Array.from({ length: 20 }, (_, number) => `reader-${number}`);
/** All readers follow this author: with small chunks the audience takes several. */
export const BIG_AUTHOR = "alice";
/** Five readers follow this author: the audience is written at once. */
export const SMALL_AUTHOR = "anna";
/** Ten readers follow this author, who may be suspended. */
export const SUSPECT = "sue";
/** This author approves followers: who wants to follow asks first. */
export const APPROVER = "lena";
/** They follow all authors of whom they may mute some, for a time or for good. */
export const MUTERS = ["mia", "max"];
/** They follow and unfollow everybody. */
export const CHURNERS = ["ada", "ben", "cleo", "dan@example.org", "*"];
export const ACTORS = ["https://remote.example/users/rita", "remote-rob"];
/** Beside their users, who may be suspended or limited. */
export const REMOTE_HOST = "remote.example";
export const VISIBILITIES = ["public", "public", "unlisted", "followers", "direct"] as const;

/** All of these have a home timeline. */
export const PEOPLE = [BIG_AUTHOR, SMALL_AUTHOR, SUSPECT, APPROVER, ...MUTERS, ...CHURNERS, ...READERS];
/** Their homes are read only in the middle of a history, by chance, or not before its end. */
export const UNREAD = READERS.slice(15);

/** Returns whom a reader follows from the beginning to the end. */
export function steadyFollowings(reader: string): readonly string[] {
  const place = READERS.indexOf(reader);
  if (place < 0) return [];
  if (place < 5) return [BIG_AUTHOR, SMALL_AUTHOR, SUSPECT];
  return place < 10 ? [BIG_AUTHOR, SUSPECT] : [BIG_AUTHOR];
}

/** Returns the users who follow an author from the beginning to the end. */
export function steadyFollowers(author: string): readonly string[] {
  return READERS.filter((reader) => steadyFollowings(reader).includes(author));
}
