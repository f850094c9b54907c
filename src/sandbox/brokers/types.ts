/** The two servers that can be embedded. */
export type BrokerName = "redis" | "nats";

/** A server binary that was found, and how to run it. */
export type BrokerBinary = {
  readonly command: string;
  /** Variables to add to the server's environment, LD_LIBRARY_PATH where it needs carried libraries. */
  readonly env: Record<string, string>;
  readonly version: string;
  readonly origin: "path" | "cache" | "debian";
};

/** Told what is going on while something takes longer than a moment. */
export type OnProgress = (text: string) => void;

/** How a server ended: a code or a signal, never both. */
export type BrokerExit = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

/** A running server. */
export type Broker = {
  readonly kind: BrokerName;
  readonly url: string;
  readonly port: number;
  /** The real server process, not the guard around it. */
  readonly pid: number;
  readonly dir: string;
  readonly version: string;
  /** Redis only: how a shell calls the client that came with the server. */
  readonly cli?: string;
  /** NATS only: the HTTP monitoring endpoint. */
  readonly monitorUrl?: string;
  /** Settles when the server has ended, whatever the reason. */
  readonly exited: Promise<BrokerExit>;
  /** SIGTERM, then SIGKILL after 5 seconds; safe to call twice. */
  stop(): Promise<void>;
  /** Sends a signal to the real server; does nothing once it has ended. */
  kill(signal: NodeJS.Signals): void;
};

/** What both servers take. */
export type StartOptions = {
  /** Data folder; made when missing. A restart on the same folder keeps the data. */
  readonly dir: string;
  /** A free port is chosen when absent. */
  readonly port?: number;
  readonly extraArgs?: readonly string[];
  /** A server binary to use instead of searching for one. */
  readonly binary?: string;
  readonly onProgress?: OnProgress;
};
