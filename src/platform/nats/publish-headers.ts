import { ErrorCode, NatsError } from "nats";

interface Fields {
  readonly id: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly stream?: string | undefined;
}

const HEADER_NAME = /^[!-9;-~]+$/;
const LINE_BREAK = /[\r\n]/;

/** The headers of a message as they are sent. */
export function fieldsOf({ id, headers, stream }: Fields): string {
  let fields = "NATS/1.0\r\n";
  for (const name in headers) fields += fieldOf(name, headers[name] as string);
  fields += fieldOf("Nats-Msg-Id", id);
  if (stream !== undefined) fields += fieldOf("Nats-Expected-Stream", stream);
  return `${fields}\r\n`;
}

function fieldOf(name: string, value: string): string {
  if (!HEADER_NAME.test(name) || LINE_BREAK.test(value)) throw NatsError.errorForCode(ErrorCode.BadHeader);
  return `${name}: ${value}\r\n`;
}
