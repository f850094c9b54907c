/** Headers of a dead letter. */
export const DLQ_HEADER = {
  reason: "Dlq-Reason",
  error: "Dlq-Error",
  errorCode: "Dlq-Error-Code",
  stream: "Dlq-Stream",
  streamSeq: "Dlq-Stream-Seq",
  consumer: "Dlq-Consumer",
  subject: "Dlq-Subject",
  deliveries: "Dlq-Deliveries",
  firstSeen: "Dlq-First-Seen",
  failedAt: "Dlq-Failed-At",
  msgId: "Dlq-Msg-Id",
  redriveCount: "Dlq-Redrive-Count",
  version: "Dlq-Version",
  /** Size of the whole body in bytes, where the letter carries only its beginning. */
  size: "Dlq-Size",
} as const;
