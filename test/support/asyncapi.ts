import { expect } from "@jest/globals";
import { Ajv } from "ajv";
import addFormats from "ajv-formats";

interface Message {
  readonly payload: { readonly $ref?: string };
  readonly headers?: { readonly properties: Readonly<Record<string, unknown>> };
}

interface Channel {
  readonly address: string;
  readonly servers: readonly { readonly $ref: string }[];
  readonly messages: Readonly<Record<string, Message>>;
  readonly parameters?: Readonly<Record<string, { readonly enum?: readonly string[] }>>;
}

/** The parts of an AsyncAPI document that tests look at. */
export interface EventDocument {
  readonly channels: Readonly<Record<string, Channel>>;
  readonly operations: Readonly<
    Record<string, { readonly action: string; readonly channel: { readonly $ref: string } }>
  >;
  readonly components: { readonly schemas: Readonly<Record<string, unknown>> };
}

const literal = (text: string): string => text.replaceAll(/[.*+?^$()|[\]\\]/g, "\\$&");

const patternOf = ({ address, parameters = {} }: Channel): RegExp =>
  new RegExp(
    `^${literal(address).replaceAll(/\{(\w+)\}/g, (_, name) => `(${parameters[name]?.enum?.join("|") ?? "[^/]+"})`)}$`,
  );

/** Names of the channels that have the address: a subject, a channel of Redis or the path of a stream. */
export const channelsAt = ({ channels }: EventDocument, server: string, address: string): string[] =>
  Object.entries(channels).flatMap(([id, channel]) =>
    channel.servers.some(({ $ref }) => $ref === `#/servers/${server}`) && patternOf(channel).test(address) ? [id] : [],
  );

/** Returns a check of real messages by the schemas of the document; it returns the channel and the message. */
export function checkerOf(document: EventDocument) {
  const ajv = new Ajv({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.addSchema({ $id: "document", components: document.components });
  return (
    server: string,
    address: string,
    { name, data }: { readonly name?: string; readonly data: unknown },
  ): string => {
    const [id = "", ...others] = channelsAt(document, server, address);
    expect([address, id === "", others]).toEqual([address, false, []]);
    const { messages = {} } = document.channels[id] ?? {};
    const message = name ?? Object.keys(messages)[0] ?? "";
    expect([id, message, message in messages]).toEqual([id, message, true]);
    const { $ref } = messages[message]?.payload ?? {};
    if ($ref !== undefined) {
      ajv.validate(`document${$ref}`, data);
      expect([id, message, data, ajv.errors ?? []]).toEqual([id, message, data, []]);
    }
    return `${id} ${message}`;
  };
}
