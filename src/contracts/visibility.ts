import { type Drop, Visibility } from "../gen/avion/posts.js";

/** Whether a drop of somebody a reader follows, or the reader's own, belongs into the reader's home timeline. */
export function belongsHome(drop: Drop, reader: string): boolean {
  if (drop.deleted) return false;
  switch (drop.visibility) {
    case Visibility.PUBLIC:
    case Visibility.UNLISTED:
    case Visibility.FOLLOWERS:
      return true;
    case Visibility.DIRECT:
      return drop.user_id === reader || drop.recipients.includes(reader);
    default:
      // What a newer upstream may say and we do not know is shown to nobody but its author.
      return drop.user_id === reader;
  }
}
