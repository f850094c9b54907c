/** Documents as one server software sends them. They follow its documentation, with the extensions that it lists. */
export interface Server {
  readonly actor: Readonly<Record<string, unknown>> & { readonly id: string; readonly followers: string };
  readonly webfinger: string;
  /** Makes a drop with this audience; a list of one address may be written as the address itself. */
  note(
    id: string,
    audience: Audience,
    inReplyTo: string | null,
  ): Readonly<Record<string, unknown>> & { readonly id: string };
}

export interface Audience {
  readonly to: readonly string[];
  readonly cc: readonly string[];
  /** Local people who are mentioned. */
  readonly mentioned: readonly string[];
}

const AS = "https://www.w3.org/ns/activitystreams";
const SECURITY = "https://w3id.org/security/v1";
const KEY = "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----\n";
const PUBLISHED = "2026-01-02T03:04:05Z";

const mentionsOf = ({ mentioned }: Audience, name: (href: string) => string) =>
  mentioned.map((href) => ({ type: "Mention", href, name: name(href) }));

const nameOf = (href: string): string => `@${href.split("/").at(-1)}@${new URL(href).host}`;

/** The fields that every actor has. */
const actorOf = (host: string, id: string, fields: object) => ({
  ...{ id, type: "Person", preferredUsername: "eve", name: "Eve", summary: "<p>Hi</p>" },
  ...{ inbox: `${id}/inbox`, outbox: `${id}/outbox`, followers: `${id}/followers`, following: `${id}/following` },
  ...{ url: `https://${host}/@eve`, manuallyApprovesFollowers: false },
  ...{ icon: { type: "Image", mediaType: "image/png", url: `https://${host}/eve.png` } },
  ...{ publicKey: { id: `${id}#main-key`, owner: id, publicKeyPem: KEY } },
  ...fields,
});

const mastodon: Server = {
  webfinger: "eve@mastodon.example",
  actor: actorOf("mastodon.example", "https://mastodon.example/users/eve", {
    "@context": [
      ...[AS, SECURITY],
      {
        ...{ manuallyApprovesFollowers: "as:manuallyApprovesFollowers", toot: "http://joinmastodon.org/ns#" },
        featured: { "@id": "toot:featured", "@type": "@id" },
        ...{ schema: "http://schema.org#", PropertyValue: "schema:PropertyValue", value: "schema:value" },
        discoverable: "toot:discoverable",
      },
    ],
    ...{
      featured: "https://mastodon.example/users/eve/collections/featured",
      discoverable: true,
      published: PUBLISHED,
    },
    attachment: [{ type: "PropertyValue", name: "Site", value: '<a href="https://eve.example" rel="me">eve</a>' }],
    endpoints: { sharedInbox: "https://mastodon.example/inbox" },
    tag: [],
  }),
  note: (number, audience, inReplyTo) => {
    const id = `https://mastodon.example/users/eve/statuses/${number}`;
    return {
      "@context": [
        AS,
        {
          ...{ ostatus: "http://ostatus.org#", atomUri: "ostatus:atomUri", conversation: "ostatus:conversation" },
          ...{ inReplyToAtomUri: "ostatus:inReplyToAtomUri", sensitive: "as:sensitive" },
        },
      ],
      ...{
        id,
        type: "Note",
        summary: null,
        inReplyTo,
        published: PUBLISHED,
        url: `https://mastodon.example/@eve/${number}`,
      },
      ...{ attributedTo: "https://mastodon.example/users/eve", to: audience.to, cc: audience.cc, sensitive: false },
      ...{
        atomUri: id,
        inReplyToAtomUri: inReplyTo,
        conversation: `tag:mastodon.example,2026-01-02:objectId=${number}`,
      },
      ...{ content: "<p>hello</p>", contentMap: { en: "<p>hello</p>" } },
      attachment: [
        {
          ...{ type: "Document", mediaType: "image/png", url: "https://mastodon.example/1.png", name: null },
          ...{ blurhash: "UBL_:rOpGG", focalPoint: [0, 0.5], width: 4, height: 3 },
        },
      ],
      tag: mentionsOf(audience, nameOf),
      replies: {
        ...{ id: `${id}/replies`, type: "Collection" },
        first: { type: "CollectionPage", next: `${id}/replies?page=true`, partOf: `${id}/replies`, items: [] },
      },
    };
  },
};

const misskey: Server = {
  webfinger: "eve@misskey.example",
  actor: actorOf("misskey.example", "https://misskey.example/users/9x1", {
    "@context": [
      ...[AS, SECURITY],
      {
        ...{ Key: "sec:Key", misskey: "https://misskey-hub.net/ns#", isCat: "misskey:isCat" },
        _misskey_summary: "misskey:_misskey_summary",
      },
    ],
    ...{ featured: "https://misskey.example/users/9x1/collections/featured", _misskey_summary: "Hi", isCat: true },
    ...{ sharedInbox: "https://misskey.example/inbox", endpoints: { sharedInbox: "https://misskey.example/inbox" } },
    ...{ image: null, tag: [], discoverable: true },
    publicKey: {
      ...{ id: "https://misskey.example/users/9x1#main-key", type: "Key" },
      ...{ owner: "https://misskey.example/users/9x1", publicKeyPem: KEY },
    },
  }),
  note: (number, audience, inReplyTo) => ({
    "@context": [
      AS,
      SECURITY,
      { misskey: "https://misskey-hub.net/ns#", _misskey_content: "misskey:_misskey_content" },
    ],
    ...{
      id: `https://misskey.example/notes/${number}`,
      type: "Note",
      inReplyTo,
      published: "2026-01-02T03:04:05.678Z",
    },
    ...{ attributedTo: "https://misskey.example/users/9x1", summary: null, content: "<p><span>hello</span></p>" },
    ...{ _misskey_content: "hello", source: { content: "hello", mediaType: "text/x.misskeymarkdown" } },
    ...{ to: audience.to, cc: audience.cc, attachment: [], sensitive: false },
    tag: mentionsOf(audience, nameOf),
  }),
};

/** Some servers write a list of one as its only item, and leave out an empty list. */
const compact = (ids: readonly string[]) => (ids.length > 1 ? ids : ids[0]);

const gotosocial: Server = {
  webfinger: "eve@gotosocial.example",
  actor: actorOf("gotosocial.example", "https://gotosocial.example/users/eve", {
    "@context": ["https://gotosocial.org/ns", SECURITY, AS, "http://joinmastodon.org/ns"],
    ...{
      discoverable: true,
      featured: "https://gotosocial.example/users/eve/collections/featured",
      published: PUBLISHED,
    },
    ...{ hidesToPublicFromUnauthedWeb: false, tag: [] },
    publicKey: {
      id: "https://gotosocial.example/users/eve/main-key",
      ...{ owner: "https://gotosocial.example/users/eve", publicKeyPem: KEY },
    },
  }),
  note: (number, audience, inReplyTo) => {
    const policy = { always: [`${AS}#Public`], automaticApproval: [`${AS}#Public`], manualApproval: [] };
    return {
      "@context": ["https://gotosocial.org/ns", AS, { sensitive: "as:sensitive" }],
      ...{ id: `https://gotosocial.example/users/eve/statuses/${number}`, type: "Note", published: PUBLISHED },
      ...{ attributedTo: "https://gotosocial.example/users/eve", attachment: [], sensitive: false, summary: "" },
      ...{ content: "<p>hello</p>", contentMap: { en: "<p>hello</p>" } },
      interactionPolicy: { canLike: policy, canReply: policy, canAnnounce: policy },
      ...(inReplyTo === null ? {} : { inReplyTo }),
      replies: {
        ...{ id: `https://gotosocial.example/users/eve/statuses/${number}/replies`, type: "Collection" },
        first: { type: "CollectionPage", partOf: `https://gotosocial.example/users/eve/statuses/${number}/replies` },
      },
      ...{
        to: compact(audience.to),
        cc: compact(audience.cc),
        tag: compact(audience.mentioned) && mentionsOf(audience, nameOf)[0],
      },
    };
  },
};

const LITEPUB = [AS, "https://pleroma.example/schemas/litepub-0.1.jsonld", { "@language": "und" }];

const pleroma: Server = {
  webfinger: "eve@pleroma.example",
  actor: actorOf("pleroma.example", "https://pleroma.example/users/eve", {
    "@context": LITEPUB,
    ...{ alsoKnownAs: [], attachment: [], capabilities: { acceptsChatMessages: true }, discoverable: false },
    endpoints: {
      oauthAuthorizationEndpoint: "https://pleroma.example/oauth/authorize",
      ...{ sharedInbox: "https://pleroma.example/inbox", uploadMedia: "https://pleroma.example/api/ap/upload_media" },
    },
    ...{ featured: "https://pleroma.example/users/eve/collections/featured", tag: [], "vcard:bday": null },
  }),
  note: (number, audience, inReplyTo) => ({
    "@context": LITEPUB,
    ...{ id: `https://pleroma.example/objects/${number}`, type: "Note", published: "2026-01-02T03:04:05.678901Z" },
    ...{ actor: "https://pleroma.example/users/eve", attributedTo: "https://pleroma.example/users/eve" },
    ...{ to: audience.to, cc: audience.cc, attachment: [], sensitive: null, summary: "", inReplyTo: inReplyTo ?? "" },
    ...{
      content: "hello",
      source: { content: "hello", mediaType: "text/plain" },
      emoji: { blob: "https://pleroma.example/e.png" },
    },
    ...{ context: "https://pleroma.example/contexts/1", conversation: "https://pleroma.example/contexts/1" },
    ...{ repliesCount: 0, tag: mentionsOf(audience, nameOf) },
  }),
};

export const SERVERS: readonly (readonly [software: string, Server])[] = Object.entries({
  ...{ mastodon, misskey, gotosocial, pleroma },
});
