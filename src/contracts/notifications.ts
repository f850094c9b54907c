/** What a person's stream is told. The name is the SSE event; the rest is its data. */
export type Notification =
  | { readonly event: "new_drop"; readonly drop_id: string; readonly created_at: number }
  | { readonly event: "drop_deleted"; readonly drop_id: string };

/** What was done, for lag and counts; body of `completed.fanout`. */
export interface FanoutCompleted {
  readonly event: string;
  readonly drop_id: string;
  readonly user_id: string;
  /** Users whose home timelines were meant. */
  readonly recipients: number;
  readonly chunks: number;
  /** All in ms since the epoch. */
  readonly created_at: number;
  readonly admitted_at: number;
  readonly landed_at: number;
  /** From creation to the last write, in ms. */
  readonly lag_ms: number;
}
