import { expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { eventOfSubject, messageId, parseEvent } from "../../../../src/contracts/events.js";
import type { EventDraft } from "../../../../src/contracts/outbox.js";
import { RemoteKind, Visibility } from "../../../../src/gen/avion/posts.js";
import type { NewDrop } from "../../../../src/posts/drops/drops.sql.js";
import { dropCreated, dropDeleted, engagementChanged, remoteDropReceived } from "../../../../src/posts/drops/events.js";
import { NO_PAYLOAD } from "../../../../src/posts/drops/payload.js";
import type { NewRemoteObject } from "../../../../src/posts/remote/remote.sql.js";

const NOW = 1_770_000_000_000;
const URI = "https://far.example/notes/1";
const drop: NewDrop = {
  drop_id: v7({ msecs: NOW }),
  user_id: "ada@here",
  visibility: Visibility.PUBLIC,
  recipients: [],
  reply_to: "",
  reply_to_author: "",
  mentions: [],
  ...NO_PAYLOAD,
  summary: "not told",
  body: "not told",
};
const remote: NewRemoteObject = {
  uri: URI,
  kind: RemoteKind.DROP,
  actor_uri: "",
  created_at: NOW,
  visibility: Visibility.PUBLIC,
  recipients: [],
  document: "{}",
  public_key: "",
  webfinger: "",
  webfinger_type: "",
  webfinger_href: "",
  lrdd_template: "",
  reply_to: "",
  reply_to_author: "",
  mentions: [],
  payload: NO_PAYLOAD,
  awaits_actor: false,
  drop_id: null,
  updated_at: 0,
  by_document: false,
};
const base = { drop_id: drop.drop_id, user_id: drop.user_id, created_at: NOW };

test.each<[string, EventDraft, object]>([
  ["a public drop", dropCreated(drop), { ...base, visibility: "public" }],
  ["an unlisted drop", dropCreated({ ...drop, visibility: Visibility.UNLISTED }), { ...base, visibility: "unlisted" }],
  [
    "a drop for followers",
    dropCreated({ ...drop, visibility: Visibility.FOLLOWERS }),
    { ...base, visibility: "followers" },
  ],
  [
    "a direct drop",
    dropCreated({ ...drop, visibility: Visibility.DIRECT, recipients: ["bob"] }),
    { ...base, visibility: "direct", recipients: ["bob"] },
  ],
  [
    "a direct drop to nobody",
    dropCreated({ ...drop, visibility: Visibility.DIRECT }),
    { ...base, visibility: "direct", recipients: [] },
  ],
  [
    "a repost",
    dropCreated(drop, { repost_of: "original", repost_author: "bob" }),
    { ...base, visibility: "public", repost_of: "original", repost_author: "bob" },
  ],
  ["a deleted drop", dropDeleted(drop.drop_id, drop.user_id), { drop_id: drop.drop_id, user_id: drop.user_id }],
  ["a deleted remote drop", dropDeleted(URI), { drop_id: URI }],
  ["a remote drop", remoteDropReceived(remote), { drop_id: URI, created_at: NOW, visibility: "public" }],
  [
    "a remote drop of an actor",
    remoteDropReceived({ ...remote, actor_uri: `${URI}/eve` }),
    { drop_id: URI, created_at: NOW, user_id: `${URI}/eve`, visibility: "public" },
  ],
  [
    "a remote reply",
    remoteDropReceived({ ...remote, reply_to: "parent", reply_to_author: "bob" }),
    { drop_id: URI, created_at: NOW, visibility: "public", reply_to: "parent", reply_to_author: "bob" },
  ],
  [
    "a remote drop that mentions people",
    remoteDropReceived({ ...remote, mentions: ["ada@here", `${URI}/eve`] }),
    { drop_id: URI, created_at: NOW, visibility: "public", mentions: ["ada@here", `${URI}/eve`] },
  ],
  [
    "a direct remote drop",
    remoteDropReceived({ ...remote, visibility: Visibility.DIRECT, recipients: ["bob"] }),
    { drop_id: URI, created_at: NOW, visibility: "direct", recipients: ["bob"] },
  ],
])("%s is told in the words of the contract, under the id every bridge gives it", (_, event, payload) => {
  const understood = parseEvent(eventOfSubject(event.subject), Buffer.from(event.body), NOW);
  expect(JSON.parse(event.body)).toEqual(payload);
  expect(understood.payload).toEqual(payload);
  expect(event.messageId).toBe(messageId(understood));
  expect(event.key).toBe((payload as { drop_id: string }).drop_id);
});

test("user ids are encoded in message ids", () => {
  const { messageId: id, key, body } = engagementChanged({ drop_id: drop.drop_id, kind: "like", actor_id: "a:b c" });
  expect(id).toMatch(/^engagement:[0-9a-f-]{36}:like:=[A-Za-z0-9_-]+$/);
  expect(id).toBe(`engagement:${key}`);
  expect(JSON.parse(body)).toEqual({ drop_id: drop.drop_id, kind: "like", actor_id: "a:b c" });
});
