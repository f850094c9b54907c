/** The only message to the bare loop. */
export interface BareOrder {
  readonly redisUrl: string;
  readonly natsUrl: string;
  readonly channel: string;
  readonly subject: string;
}
