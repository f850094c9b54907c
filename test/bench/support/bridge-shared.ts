/** The only message to a bare loop. */
export interface BareOrder {
  readonly redisUrl: string;
  readonly natsUrl: string;
  readonly channel: string;
  readonly subject: string;
  /** Each payload is checked as an event is, and published with the headers and the body that a bridge gives it. */
  readonly isChecked: boolean;
}
