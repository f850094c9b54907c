import type * as wire from "../gen/avion/users.js";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { AppError, invalid } from "../kernel/errors.js";
import { readId, readText, storedIdFault } from "../kernel/fields.js";
import type { PageLimits, PageTokens } from "../kernel/paging.js";
import { parseUrl } from "../kernel/urls.js";
import type { ApprovalStore } from "./approvals.sql.js";
import type { ProfileStore } from "./reads.sql.js";

/** A page of profiles must fit into gRPC's 4 MiB. */
const PROFILE_PAGES: PageLimits = { default: 100, max: 500 };
const MAX_NAME = 100;
const MAX_BIO = 1_000;
const MAX_URL = 500;

export interface ProfileDeps {
  readonly profiles: ProfileStore;
  readonly approvals: Pick<ApprovalStore, "set">;
  readonly bounded: BoundedQueue;
  readonly tokens: PageTokens;
}

// Each method throws an AppError: `invalid` naming the field, `notfound` if the user has no profile, `conflict` if the user
// is erased.

export const profiles = ({ profiles: store, approvals, bounded, tokens }: ProfileDeps) => ({
  async getProfile({ user_id }: wire.GetProfileRequest): Promise<wire.GetProfileResponse> {
    const user = readId("user_id", user_id);
    const profile = await bounded(() => store.get(user));
    if (profile === undefined) throw new AppError("notfound", "user_id: has no profile");
    return { profile };
  },

  /** Clears the fields that the request leaves out, except the approval of followers. */
  async setProfile(request: wire.SetProfileRequest): Promise<wire.SetProfileResponse> {
    const profile = await store.set({
      user_id: readId("user_id", request.user_id),
      display_name: readText("display_name", request.display_name, MAX_NAME),
      bio: readText("bio", request.bio, MAX_BIO),
      avatar_url: readUrl("avatar_url", request.avatar_url),
      approves_followers: request.approves_followers,
    });
    return { profile };
  },

  async setApproval({ user_id, approves_followers }: wire.SetApprovalRequest): Promise<wire.SetApprovalResponse> {
    await approvals.set(readId("user_id", user_id), approves_followers);
    return {};
  },

  async listProfiles(request: wire.ListProfilesRequest): Promise<wire.ListProfilesResponse> {
    const { prefix } = request;
    const fault = prefix === "" ? undefined : storedIdFault(prefix);
    if (fault !== undefined) throw invalid("prefix", fault);
    const page = tokens.open<[string]>(["profiles", prefix], request, PROFILE_PAGES);
    const [after] = page.after ?? [""];
    const rows = await bounded(() => store.list(prefix, after, page.limit));
    const { items, next_page_token } = page.pageOf(rows, ({ user_id }) => [user_id]);
    return { profiles: items, next_page_token };
  },
});

/** An empty text means that there is no picture. */
function readUrl(field: string, text: string): string {
  readText(field, text, MAX_URL);
  if (text !== "" && !/^https?:$/.test(parseUrl(text)?.protocol ?? ""))
    throw invalid(field, "must be an http or https URL");
  return text;
}
