import { createRequire } from "node:module";
import jsonld from "jsonld";

const CONTEXT = "https://www.w3.org/ns/activitystreams";
const require = createRequire(import.meta.url);
const context = require("activitystreams-context");

/** Loads the context of ActivityStreams from its package, and nothing from the network. */
const documentLoader = async (url: string) => {
  if (url !== CONTEXT) throw new Error(`no document may need ${url}`);
  return { contextUrl: undefined, documentUrl: url, document: context };
};

const AS = `${CONTEXT}#`;

const terms = Object.values<string | { "@id": string }>(context["@context"]).map((term) =>
  typeof term === "string" ? term : term["@id"],
);
/** All classes and properties of the vocabulary. */
const VOCABULARY = new Set([
  ...terms.map((term) => term.replace(/^as:/, AS).replace(/^ldp:/, "http://www.w3.org/ns/ldp#")),
  // Servers know these, and documents bring them along.
  `${AS}sensitive`,
  `${AS}manuallyApprovesFollowers`,
]);

const ACTIVITIES = ["Create", "Like", "Announce"];
const COLLECTIONS = ["OrderedCollection", "OrderedCollectionPage"];
/** The classes that have a property; every object may have those that are not listed. */
const DOMAINS: Readonly<Record<string, readonly string[]>> = {
  ...{ actor: ACTIVITIES, object: ACTIVITIES },
  ...{ totalItems: COLLECTIONS, first: COLLECTIONS, items: COLLECTIONS },
  ...{ partOf: ["OrderedCollectionPage"], next: ["OrderedCollectionPage"] },
  ...{ formerType: ["Tombstone"], deleted: ["Tombstone"], href: ["Mention"] },
  ...{
    preferredUsername: ["Person"],
    outbox: ["Person"],
    followers: ["Person"],
    "http://www.w3.org/ns/ldp#inbox": ["Person"],
  },
};

type Node = Readonly<Record<string, unknown>>;

function faultsOf(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(faultsOf);
  if (typeof value !== "object" || value === null) return [];
  const node = value as Node;
  if ("@value" in node) return faultsOfValue(node);
  const types = (node["@type"] ?? []) as string[];
  const classes = types.filter((type) => !VOCABULARY.has(type)).map((type) => `${type} is no class`);
  const properties = Object.entries(node).filter(([name]) => !name.startsWith("@"));
  const unknown = properties.filter(([name]) => !VOCABULARY.has(name)).map(([name]) => `${name} is no property`);
  const misplaced = properties.flatMap(([name]) => {
    const domain = DOMAINS[name.replace(AS, "")];
    const has = domain === undefined || types.some((type) => domain.includes(type.replace(AS, "")));
    return has ? [] : `${types.join()} has no ${name}`;
  });
  return [...classes, ...unknown, ...misplaced, ...Object.values(node).flatMap(faultsOf)];
}

function faultsOfValue(node: Node): string[] {
  const { "@type": type, "@value": value } = node;
  if (type !== "http://www.w3.org/2001/XMLSchema#dateTime") return [];
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(String(value)) ? [] : [`${String(value)} is no time`];
}

/** Resolves to the faults of a document: where it breaks the vocabulary of ActivityStreams, or JSON-LD loses a part. */
export async function faultsInActivity(json: string): Promise<string[]> {
  const document = JSON.parse(json) as jsonld.JsonLdDocument;
  const expanded = await jsonld.expand(document, { documentLoader });
  const { "@context": own } = document as Node as { "@context": jsonld.ContextDefinition };
  const compacted = await jsonld.compact(expanded, own, { documentLoader });
  const isSame = JSON.stringify(sorted(compacted)) === JSON.stringify(sorted(document));
  return [...faultsOf(expanded), ...(isSame ? [] : [`JSON-LD makes ${JSON.stringify(compacted)} of it`])];
}

/** A list of one item is the same as the item, and as:Public a short name of the collection. */
function sorted(value: unknown): unknown {
  if (value === "as:Public") return `${AS}Public`;
  if (Array.isArray(value)) return value.length === 1 ? sorted(value[0]) : value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, one]) => one !== undefined);
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, one]) => [name, sorted(one)]));
}
