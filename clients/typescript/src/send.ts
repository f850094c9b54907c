export interface ClientOptions {
  /** Address of the gateway, with its path prefix if it has one. Default: the origin of the page. */
  readonly url?: string;
  /**
   * Returns the access token. It is called for each request; after a 401 it gets the refused token, and the request is
   * sent once more if another token comes. If it rejects, a stream tries again later; with a TimelineError of a final status,
   * the stream ends. Without this function browsers send their cookie.
   */
  readonly token?: (refused?: string) => string | Promise<string>;
  readonly fetch?: typeof globalThis.fetch;
}

export interface Message {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal: AbortSignal;
}

/** Sends a request to a path of the gateway with the client's token. */
export type Send = (path: string, message: Message) => Promise<Response>;

export function createSend({ url = "", token, fetch = globalThis.fetch }: ClientOptions): Send {
  const base = url.replace(/\/+$/, "");
  const send = (path: string, message: Message, bearer?: string): Promise<Response> => {
    const headers = { ...message.headers, ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }) };
    const credentials = token ? ("same-origin" as const) : ("include" as const);
    // The types of Node lack it.
    const uncached = { cache: "no-store" };
    return fetch(base + path, { ...message, ...uncached, headers, credentials });
  };
  const renewals = new Renewals(token);
  return async (path, message) => {
    const { settled } = renewals;
    const bearer = await token?.();
    const response = await send(path, message, bearer);
    if (response.status !== 401 || bearer === undefined) return response;
    const renewed = await renewals.renew(bearer, settled);
    if (renewed === bearer) return response;
    await response.body?.cancel();
    return send(path, message, renewed);
  };
}

/** A renewal that takes longer is no longer shared, ms: one that never ends would hold all later requests. */
const SHARED_MS = 30_000;

/** Requests whose token is refused at the same time share one renewal. */
class Renewals {
  /** Number of renewals that are over. */
  settled = 0;
  #last:
    | {
        readonly refused: string;
        readonly number: number;
        readonly begunAt: number;
        readonly renewed: Promise<string | undefined>;
      }
    | undefined;

  constructor(private readonly token: ClientOptions["token"]) {}

  /** @param before number of renewals that were over when the request began */
  renew(refused: string, before: number): Promise<string | undefined> {
    const [last, begunAt] = [this.#last, performance.now()];
    const isLate = last !== undefined && begunAt - last.begunAt > SHARED_MS;
    if (last?.refused === refused && last.number >= before && !isLate) return last.renewed;
    const number = this.settled;
    const renewed = Promise.resolve(this.token?.(refused)).finally(() => {
      this.settled++;
    });
    this.#last = { refused, number, begunAt, renewed };
    return renewed;
  }
}
