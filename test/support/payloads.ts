/** The channels of Redis the service listens to. */
export type Channel = "drop_created" | "drop_deleted" | "ap_drop_received" | "user_followed" | "user_unfollowed";

/** A payload that cannot be understood. */
export type BadPayload = { readonly name: string; readonly channel: Channel; readonly bytes: Buffer };

const MINUTE = 60_000;

/** A payload of each channel that is fine; `unique` keeps ids apart. */
export function goodPayload(channel: Channel, unique: string): Record<string, unknown> {
  const drop_id = `drop-${unique}`;
  if (channel === "drop_created") return { drop_id, user_id: "alice", visibility: "public", created_at: Date.now() };
  if (channel === "drop_deleted") return { drop_id, user_id: "alice" };
  if (channel === "ap_drop_received") return { drop_id, created_at: Date.now() };
  return { follower_id: `follower-${unique}`, following_id: "alice", version: 1 };
}

/** Texts that are no JSON object. */
const NO_OBJECTS: Readonly<Record<string, string>> = {
  empty: "",
  blank: "  \n",
  "half an object": '{"drop_id":"half"',
  words: "drop one is here",
  array: '[{"drop_id":"a"}]',
  "empty array": "[]",
  null: "null",
  number: "42",
  text: '"drop"',
  true: "true",
  "empty object": "{}",
  "two objects": '{"drop_id":"a"}{"drop_id":"b"}',
  "NaN as time": '{"drop_id":"nan","user_id":"alice","visibility":"public","created_at":NaN}',
};

const CHANNELS = ["drop_created", "drop_deleted", "ap_drop_received", "user_followed", "user_unfollowed"] as const;
const REQUIRED: Readonly<Record<Channel, readonly string[]>> = {
  drop_created: ["drop_id", "user_id", "visibility", "created_at"],
  drop_deleted: ["drop_id"],
  ap_drop_received: ["drop_id", "created_at"],
  user_followed: ["follower_id", "following_id", "version"],
  user_unfollowed: ["follower_id", "following_id", "version"],
};
/** An unpaired surrogate: JSON can spell it, UTF-8 cannot. */
const LONE = "\\ud83d";
const LONG_ASCII = "x".repeat(129);
const LONG_UNICODE = "ü".repeat(65);

/** Everything that must end in the DLQ as `invalid`. */
export function badPayloads(): BadPayload[] {
  return [...noObjects(), ...missing(), ...mistyped(), ...badIds(), ...badTimes(), ...badBytes(), ...badDetails()];
}

function noObjects(): BadPayload[] {
  return CHANNELS.flatMap((channel) =>
    Object.entries(NO_OBJECTS).map(([name, text]) => bad(`${channel}: ${name}`, channel, text)),
  );
}

function missing(): BadPayload[] {
  return eachField((channel, field, good) => {
    const { [field]: _left, ...rest } = good;
    return [bad(`${channel}: no ${field}`, channel, JSON.stringify(rest))];
  });
}

function mistyped(): BadPayload[] {
  const wrong = [null, true, {}, [], ["drop"]];
  return eachField((channel, field, good) =>
    wrong.map((value) => {
      const name = `${channel}: ${field} is ${JSON.stringify(value)}`;
      return bad(name, channel, JSON.stringify({ ...good, [field]: value }));
    }),
  );
}

function badIds(): BadPayload[] {
  const ids = ['""', `"${LONG_ASCII}"`, `"${LONG_UNICODE}"`, `"a${LONE}"`, `"${LONE}\\ud83d"`, "17"];
  return eachField((channel, field, good) => {
    if (!field.endsWith("_id")) return [];
    const floor = field === "drop_id" ? ['"~floor"'] : [];
    return [...ids, ...floor].map((spelt) => {
      const text = JSON.stringify({ ...good, [field]: "PLACE" }).replace('"PLACE"', () => spelt);
      return bad(`${channel}: ${field} is ${spelt.slice(0, 20)}`, channel, text);
    });
  });
}

function badTimes(): BadPayload[] {
  const times = [-1, 1.5, "-1", "yesterday", "", "2024-13-45T25:00:00Z", "1700000000000"];
  const ahead = Date.now() + 6 * MINUTE;
  const both = (["drop_created", "ap_drop_received"] as const).flatMap((channel) =>
    times.map((created_at, number) => {
      const good = goodPayload(channel, `time-${number}`);
      return bad(
        `${channel}: created_at ${JSON.stringify(created_at)}`,
        channel,
        JSON.stringify({ ...good, created_at }),
      );
    }),
  );
  const good = goodPayload("drop_created", "ahead");
  return [
    ...both,
    bad("six minutes ahead", "drop_created", JSON.stringify({ ...good, created_at: ahead })),
    bad(
      "a date ahead",
      "drop_created",
      JSON.stringify({ ...good, created_at: new Date(ahead + MINUTE).toISOString() }),
    ),
    bad(
      "endless time",
      "drop_created",
      JSON.stringify({ ...good, created_at: 0 }).replace('"created_at":0', '"created_at":1e400'),
    ),
  ];
}

function badBytes(): BadPayload[] {
  const [before = "", after = ""] = JSON.stringify({ ...goodPayload("drop_created", "bytes"), drop_id: "HERE" }).split(
    "HERE",
  );
  const broken = [[0xff], [0xc3, 0x28], [0xed, 0xa0, 0x80], [0x61, 0x80]];
  return broken.map((bytes) => {
    const body = Buffer.concat([Buffer.from(before), Buffer.from(bytes), Buffer.from(after)]);
    return { name: `no UTF-8: ${Buffer.from(bytes).toString("hex")}`, channel: "drop_created", bytes: body };
  });
}

function badDetails(): BadPayload[] {
  const drop = goodPayload("drop_created", "detail");
  const edge = goodPayload("user_followed", "detail");
  return [
    bad("unknown visibility", "drop_created", JSON.stringify({ ...drop, visibility: "secret" })),
    bad("empty visibility", "drop_created", JSON.stringify({ ...drop, visibility: "" })),
    bad("visibility in capitals", "drop_created", JSON.stringify({ ...drop, visibility: "PUBLIC" })),
    bad("recipients is text", "drop_created", JSON.stringify({ ...drop, visibility: "direct", recipients: "bob" })),
    bad("recipients of numbers", "drop_created", JSON.stringify({ ...drop, visibility: "direct", recipients: [1] })),
    bad("half a version", "user_followed", JSON.stringify({ ...edge, version: 1.5 })),
    bad("version is text", "user_unfollowed", JSON.stringify({ ...edge, version: "one" })),
  ];
}

function eachField(
  make: (channel: Channel, field: string, good: Record<string, unknown>) => readonly BadPayload[],
): BadPayload[] {
  return CHANNELS.flatMap((channel) =>
    REQUIRED[channel].flatMap((field) => make(channel, field, goodPayload(channel, `bad-${field}`))),
  );
}

function bad(name: string, channel: Channel, text: string): BadPayload {
  return { name, channel, bytes: Buffer.from(text) };
}
