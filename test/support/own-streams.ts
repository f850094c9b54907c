import { Visibility } from "../../src/gen/avion/posts.js";
import type { KnownDrop } from "./busy-world.js";
import { eventually } from "./eventually.js";
import type { OwnHistory } from "./own-history.js";
import { notificationsOf, type Told, toldOnList, toldOnLocal } from "./own-oracle.js";
import { type EventStream, requestEvents, type WireEvent } from "./sse.js";
import { tokenOf } from "./tokens.js";

type Timeline = "home" | "local" | "global" | `list/${string}`;

const PATIENCE_MS = 60_000;

/** One client that resumes whenever its connection ends, as a browser does: the events of all its connections. */
export class Listening {
  readonly #before: WireEvent[] = [];
  #stream!: EventStream;
  #lastId = "";
  #connections = 0;
  #isClosed = false;

  private constructor(
    readonly user: string,
    readonly timeline: Timeline,
    /** Drops and notifications that were there before. */
    readonly known: ReadonlySet<string>,
    /** Address of the gateway that runs now. */
    private readonly url: () => string,
  ) {}

  static async open(url: () => string, { user, timeline, known }: Opened): Promise<Listening> {
    const listening = new Listening(user, timeline, known, url);
    await listening.#connect();
    void listening.#keep();
    return listening;
  }

  get events(): readonly WireEvent[] {
    return [...this.#before, ...this.#stream.events];
  }

  get resets(): readonly WireEvent[] {
    return this.events.filter(isReset);
  }

  /** Ends the connection; resolves once the next one is open. */
  async resume(): Promise<void> {
    const before = this.#connections;
    this.#stream.close();
    await eventually(() => this.#connections > before, `the stream of ${this.timeline} goes on`, PATIENCE_MS);
  }

  close(): void {
    this.#isClosed = true;
    this.#stream.close();
  }

  async #keep(): Promise<void> {
    while (!this.#isClosed) {
      await this.#stream.ended;
      if (!this.#isClosed) await this.#connect().catch(() => undefined);
    }
  }

  /** While a server is away the gateway refuses, and while the gateway is, nobody answers: then it is asked again. */
  async #connect(): Promise<void> {
    const { user, timeline, url } = this;
    const token = await tokenOf(user);
    const isOpen = async (): Promise<boolean | string> => {
      const lastEventId = this.#lastId;
      const request = { token, timeline, ...(lastEventId && { lastEventId }) };
      const stream = await requestEvents(url(), request).catch(String);
      if (typeof stream === "string") return stream;
      if (stream.status !== 200) return `${stream.status} ${stream.raw()}`;
      if (this.#connections > 0) this.#before.push(...this.#stream.events);
      this.#stream = stream;
      await eventually(() => stream.raw().includes("\n\n") || stream.isOver(), "the first bytes of the stream");
      return true;
    };
    if (this.#connections > 0) this.#lastId = this.#stream.lastId() || this.#lastId;
    await eventually(isOpen, `the stream of ${timeline} is open`, PATIENCE_MS);
    this.#connections++;
  }
}

interface Opened {
  readonly user: string;
  readonly timeline: Timeline;
  readonly known: ReadonlySet<string>;
}

/** Lists of the differences, as in `Findings`. */
export interface ToldFindings {
  readonly lost: string[];
  readonly duplicated: string[];
  readonly resurrected: string[];
  readonly unexpected: string[];
}

const isReset = ({ event }: WireEvent): boolean => event === "reset";

/** Returns what came twice between two resets: after one the client has read its page, and may be told again. */
function twice(events: readonly WireEvent[], nameOf: (event: WireEvent) => string | undefined): string[] {
  let seen = new Set<string>();
  return events.flatMap((event) => {
    if (isReset(event)) seen = new Set();
    const name = nameOf(event);
    if (name === undefined) return [];
    const isSeen = seen.has(name);
    seen.add(name);
    return isSeen ? [name] : [];
  });
}

const dropOf = ({ data }: WireEvent): string => String(data["drop_id"]);

// The gateway leaves out what it has sent before: an event that is published again under another id has no findings here.

const listOf = (history: OwnHistory, { timeline }: Listening) => history.lists.get(timeline.replace("list/", ""));

/** Says whether a stream of a list, local or global tells of a drop. */
function toldBy(history: OwnHistory, listening: Listening): (drop: KnownDrop) => Told {
  const list = listOf(history, listening);
  return (drop) => (list === undefined ? toldOnLocal(history, listening.user, drop) : toldOnList(history, list, drop));
}

/** Compares a stream of a list, local or global with the drops that were posted, and that are gone. */
export function checkDrops(history: OwnHistory, listening: Listening, findings: ToldFindings): void {
  const { user, timeline, events, known } = listening;
  const { drops, deleted } = history.world;
  const on = (drop: string): string => `${drop} on the stream of ${timeline} of ${user}`;
  const named = (name: string) => (event: WireEvent) => (event.event === name ? on(dropOf(event)) : undefined);
  findings.duplicated.push(...twice(events, named("new_drop")), ...twice(events, named("drop_deleted")));
  const toldOf = toldBy(history, listening);
  const [told, gone] = [new Set<string>(), new Set<string>()];
  for (const event of events) {
    const drop = dropOf(event);
    if (event.event === "drop_deleted") gone.add(drop);
    if (event.event !== "new_drop") continue;
    told.add(drop);
    if (gone.has(drop)) findings.resurrected.push(on(drop));
    const posted = drops.get(drop) ?? deleted.get(drop);
    // The answer of a call that died with a server may have been lost: nobody else knows the drop.
    if (posted === undefined || toldOf(posted) === "no")
      findings.unexpected.push(`${posted ? `${Visibility[posted.visibility]} of ${posted.user_id}: ` : ""}${on(drop)}`);
  }
  if (events.some(isReset)) return;
  for (const drop of drops.values())
    if (toldOf(drop) === "yes" && history.isAlive(drop) && !told.has(drop.drop_id) && !known.has(drop.drop_id))
      findings.lost.push(on(drop.drop_id));
  // A page may fill a list that has no floor between a deletion and its event: nothing tells of the deletion then.
  if (listOf(history, listening)) return;
  for (const drop of told) {
    const dead = deleted.get(drop);
    if (dead && toldOf(dead) === "yes" && !gone.has(drop)) findings.lost.push(`the deletion of ${on(drop)}`);
  }
}

/** A notification as `ListNotifications` shows it, in words. */
export interface Listed {
  readonly id: string;
  readonly words: string;
}

const isGrouped = (words: string): boolean => /^(?:LIKE|REPOST) /.test(words);

interface Notified {
  readonly user: string;
  readonly listed: readonly Listed[];
  /** The stream of the user's home, if one is open. */
  readonly stream: Listening | undefined;
}

/** Compares a list of notifications, and what the stream told, with the record. */
export function checkNotifications(
  history: OwnHistory,
  { user, listed, stream }: Notified,
  findings: ToldFindings,
): void {
  const [{ sure, possible }, shown] = [notificationsOf(history, user), listed.map(({ words }) => words)];
  const to = (words: string): string => `${words} for ${user}`;
  findings.lost.push(...sure.filter((words) => !shown.includes(words)).map(to));
  findings.unexpected.push(...shown.filter((words) => !possible.includes(words)).map(to));
  findings.duplicated.push(...shown.filter((words, at) => shown.indexOf(words) !== at).map(to));
  if (stream === undefined) return;
  const notifications = stream.events.filter((event) => event.event === "notification" || isReset(event));
  const told = ({ event, data }: WireEvent) => (event === "reset" ? undefined : to(`told ${String(data["id"])}`));
  findings.duplicated.push(...twice(notifications, told));
  if (notifications.some(isReset)) return;
  const ids = new Set(notifications.map(({ data }) => data["id"]));
  for (const { id, words } of listed)
    if (
      sure.includes(words) &&
      !isGrouped(words) &&
      !history.takenBack.has(words) &&
      !ids.has(id) &&
      !stream.known.has(id)
    )
      findings.lost.push(to(`${words} on the stream`));
  for (const { drop_id } of history.world.dropsOf(user)) {
    if (stream.known.has(drop_id)) continue;
    for (const kind of ["LIKE", "REPOST"] as const)
      checkCount(history, { user, kind, drop_id }, notifications, findings);
  }
}

/**
 * A like that is taken back may have been told or not, and one that is given again is new or not. An event of several is
 * left out if the user hides the newest of these people by then.
 */
function checkCount(
  history: OwnHistory,
  { user, kind, drop_id }: { readonly user: string; readonly kind: string; readonly drop_id: string },
  notifications: readonly WireEvent[],
  findings: ToldFindings,
): void {
  const ofKind = (history.reactions.get(drop_id) ?? []).filter((one) => one.kind === kind);
  const all = ofKind.filter(({ by }) => history.hidingOverTime(user, by) !== "always");
  const isEverHidden = all.some(({ by }) => history.hidingOverTime(user, by) !== "never");
  const sure = new Set(all.map(({ by }) => by).filter((by) => !history.takenBack.has(`${kind} ${by} ${drop_id}`)));
  const ofDrop = notifications.filter(({ data }) => data["kind"] === kind && data["drop_id"] === drop_id);
  const told = ofDrop.reduce((sum, { data }) => sum + Number(data["count"] ?? 1), 0);
  const what = `${told} times ${kind} of ${drop_id} for ${user}`;
  if (told < sure.size && !isEverHidden) findings.lost.push(`${what}, not ${sure.size}`);
  if (told > all.length) findings.duplicated.push(`${what}, not ${all.length}`);
}
