import { z } from "zod";
import { codeOf } from "../kernel/errors.js";
import { about, storedIdFault } from "../kernel/fields.js";
import { parseJson } from "./events.js";
import { ANALYSIS_COMPLETED, ANALYSIS_FAILED, XP_EARNED } from "./subjects.js";
import { understood, userId } from "./untrusted.js";

/** The tiers are sorted from the lowest to the highest. */
export const USER_TIERS = ["DRIFT", "LIFT", "JET", "ORBIT"] as const;
export type UserTier = (typeof USER_TIERS)[number];

/** Reads the tier of a token's claim; anything else is DRIFT. */
export const userTierOf = (claim: unknown): UserTier => USER_TIERS.find((tier) => tier === claim) ?? "DRIFT";

export const isAtLeast = (tier: UserTier, other: UserTier): boolean =>
  USER_TIERS.indexOf(tier) >= USER_TIERS.indexOf(other);

export const MEASURES = ["flow", "clout", "kudos", "pulse"] as const;
export type Measure = (typeof MEASURES)[number];

export const ANALYSIS_TYPES = [...MEASURES, "full"] as const;
export type AnalysisType = (typeof ANALYSIS_TYPES)[number];

export const measuresOf = (type: AnalysisType): readonly Measure[] => (type === "full" ? MEASURES : [type]);

/** Returns true for an account of the AT Protocol, false for a user of ours. */
export const isDid = (account: string): boolean => /^did:/i.test(account);

// The specification of did:plc has this pattern. A did:web must name a host, which is all that the AT Protocol allows.
const DID_PLC = /^did:plc:[a-z2-7]{24}$/;
const LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
const DID_WEB = new RegExp(`^did:web:(?:localhost|(?:${LABEL}\\.)+${LABEL})(?:%3[Aa][0-9]{1,5})?$`);
const MAX_DID_CHARACTERS = 2_048;

const BLANK = /^[\s\p{C}]*$/u;
const HANDLE = /@|^(?:[\p{L}\p{N}-]+\.)+\p{L}[\p{L}\p{N}-]*\.?(?::\d+)?(?:[/?#]|$)/u;
const URL_OR_DID = /^(?:[a-z][a-z\d+.-]*:)?\/\/|^did:/i;

const NO_ACCOUNT = "must be a DID (did:plc or did:web) or a user id";
const DID_WITH_PATH = /^did:web:[^:]+:/;
const NO_PATH = "must be a did:web of a host alone: the AT Protocol has none with a path";

/**
 * Returns true for handles, and for the id of a user of ours that looks like one: only who knows the users can tell.
 */
export const looksLikeHandle = (account: string): boolean =>
  HANDLE.test(account.trim()) && !URL_OR_DID.test(account.trim()) && storedIdFault(account) === undefined;

/**
 * Returns the reason if the text names no account that can be analysed. Handles and URLs are refused: they would be
 * taken for ids.
 */
function accountFault(account: string): string | undefined {
  if (isDid(account)) {
    const isKnown = account.length <= MAX_DID_CHARACTERS && (DID_PLC.test(account) || DID_WEB.test(account));
    return isKnown ? undefined : DID_WITH_PATH.test(account) ? NO_PATH : NO_ACCOUNT;
  }
  const text = account.trim();
  if (BLANK.test(text)) return NO_ACCOUNT;
  return storedIdFault(account) ?? (HANDLE.test(text) || URL_OR_DID.test(text) ? NO_ACCOUNT : undefined);
}

const checkedBy = (faultOf: (account: string) => string | undefined) =>
  z.string().superRefine((value, context) => {
    const fault = faultOf(value);
    if (fault) context.addIssue({ code: "custom", message: fault });
  });

const PRINTABLE = /^[!-~]+$/;
/** An event may be older than the rules of today's requests. */
const account = checkedBy((value) =>
  isDid(value) && value.length <= MAX_DID_CHARACTERS && PRINTABLE.test(value) ? undefined : storedIdFault(value),
);
const time = z.iso.datetime();

const common = {
  analysis_id: z.uuid(),
  user_id: userId,
  did: account,
  type: z.enum(ANALYSIS_TYPES),
};

const request = z.object({ ...common, tier: z.enum(USER_TIERS), requested_at: time });

/** The body of a user's request is JSON {"did", "type"}. */
export const ANALYSIS_ORDER = z.object({ did: checkedBy(accountFault), type: z.enum(ANALYSIS_TYPES) });
/** The account is ours and known, whatever its id looks like. */
export const KNOWN_ORDER = ANALYSIS_ORDER.extend({ did: userId });

const completed = z.object({
  event_id: z.uuid(),
  ...common,
  tier: z.enum(USER_TIERS),
  cached: about("the results were those of an earlier analysis", z.boolean()),
  completed_at: time,
});

const failed = z.object({
  ...common,
  attempt: z.int(),
  final: about("no attempt follows; a redriven dead letter begins anew", z.boolean()),
  error: z.string(),
  error_code: z.string(),
});

const earned = z.object({
  event_id: about("of the analysis that is rewarded", z.uuid()),
  user_id: userId,
  amount: about("XP", z.number()),
  multiplier: about("that of the user's tier", z.number()),
  reason: z.literal("timeline_analysis"),
  earned_at: time,
});

/** Bodies of the events that tell what became of analyses, by their subjects. */
export const ANALYSIS_EVENTS = {
  [ANALYSIS_COMPLETED]: about("An analysis is completed", completed),
  [ANALYSIS_FAILED]: about("An attempt of an analysis has failed", failed),
  [XP_EARNED]: about("An analysis is rewarded", earned),
} as const;

/** Body of `events.timeline.requested`. */
export type AnalysisRequest = z.output<typeof request>;
/** Body of `events.timeline.completed`. */
export type AnalysisCompleted = z.output<typeof completed>;

export const parseRequest = (body: Uint8Array): AnalysisRequest => understood(request, parseJson(body));

/** Returns undefined for a body that is no request. */
export function requestIn(body: Uint8Array): AnalysisRequest | undefined {
  try {
    return parseRequest(body);
  } catch (error) {
    if (codeOf(error) === "invalid") return undefined;
    throw error;
  }
}

export const parseCompleted = (body: Uint8Array): AnalysisCompleted => understood(completed, parseJson(body));

/**
 * Returns a test of JSON: what a request, an event or a fact names the user as. Undefined stands for neither, and for what
 * is no JSON.
 */
export function naming(user: string): (body: Uint8Array) => "user" | "account" | undefined {
  const written = Buffer.from(JSON.stringify(user).slice(1, -1));
  return (body) => {
    const text = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
    // Most name others, and need not be parsed. Other producers may escape any character.
    if (!text.includes(written) && !text.includes("\\")) return undefined;
    const { user_id, did } = namesIn(text);
    return user_id === user ? "user" : did === user ? "account" : undefined;
  };
}

function namesIn(text: Buffer): { readonly user_id?: unknown; readonly did?: unknown } {
  try {
    return (JSON.parse(text.toString()) as object | null) ?? {};
  } catch {
    return {};
  }
}

/** Body of `events.timeline.failed`. */
export type AnalysisFailed = Readonly<z.output<typeof failed>>;
/** Body of `events.xp.earned`. */
export type XpEarned = Readonly<z.output<typeof earned>>;

export type MeasureResult = Readonly<Record<string, unknown>>;

/** Times are RFC 3339. The measures are those of the type that was asked for. */
export interface AnalysisResults extends Readonly<Partial<Record<Measure, MeasureResult>>> {
  /** The version is that of the formulas. */
  readonly version: string;
  /** Number of posts that were measured. */
  readonly posts: number;
  /** Number of posts of the source that could not be read; unset if 0. */
  readonly skipped?: number;
  readonly from?: string;
  readonly to?: string;
}

export const statusPath = (analysis: string): string => `/api/v1/timeline/analyses/${analysis}`;

/** Returns the results of the measures that an analysis of this type has. */
export function resultsFor(type: AnalysisType, results: AnalysisResults): AnalysisResults {
  const wanted = measuresOf(type);
  const remaining: { -readonly [Field in keyof AnalysisResults]: AnalysisResults[Field] } = { ...results };
  for (const measure of MEASURES) if (!wanted.includes(measure)) delete remaining[measure];
  return remaining;
}
