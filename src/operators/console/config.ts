import { z } from "zod";
import { address, type ConfigOf, type Variables } from "../../kernel/variables.js";

/** A name may have colons, as that of a claim that is a URL. */
const claim = z
  .string()
  .regex(/^\S+:[^\s:]+$/, { message: "must be the name of a claim, a colon and a value, e.g. scope:timeline-operator" })
  .transform((text) => {
    const colon = text.lastIndexOf(":");
    return { name: text.slice(0, colon), value: text.slice(colon + 1) };
  });

export const OPS_VARIABLES = {
  address: {
    name: "TIMELINE_OPS_ADDR",
    schema: address,
    default: "0.0.0.0:8081",
    about: "Where the role ops serves the console: /ops; 0.0.0.0 is every address, also of IPv6",
  },
  claim: {
    name: "TIMELINE_OPS_CLAIM",
    schema: claim,
    default: "scope:timeline-operator",
    about: "Claim of a token that makes its holder an operator, as name:value; the value may be one of several",
  },
} as const satisfies Variables;

export type OpsConfig = ConfigOf<typeof OPS_VARIABLES>;
