import type * as wire from "../gen/avion/users.js";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { AppError, invalid } from "../kernel/errors.js";
import { readId, readText, storedIdFault } from "../kernel/fields.js";
import { encodeId } from "../kernel/ids.js";
import type { PageLimits, PageTokens } from "../kernel/paging.js";
import { SingleFlight } from "../kernel/sharing.js";
import type { ProfileCache } from "./cache.redis.js";
import { orUncached } from "./lists.js";
import type { ObserveUsers } from "./observe.js";
import type { Profile, ProfileDraft, ProfileStore } from "./reads.sql.js";

/** A page of profiles must fit into gRPC's 4 MiB. */
const PROFILE_PAGES: PageLimits = { default: 100, max: 500 };
const MAX_NAME = 100;
const MAX_BIO = 1_000;
const MAX_URL = 500;

export interface ProfileDeps {
  readonly profiles: ProfileStore;
  readonly profileCache: ProfileCache;
  readonly bounded: BoundedQueue;
  readonly tokens: PageTokens;
  readonly observe: Pick<ObserveUsers, "read" | "superseded" | "cacheFailed">;
}

// Each method throws an AppError: `invalid` naming the field, `notfound` if the user has no profile.

export const profiles = (deps: ProfileDeps) => {
  const readProfile = createReadProfile(deps);
  return {
    async getProfile({ user_id }: wire.GetProfileRequest): Promise<wire.GetProfileResponse> {
      const profile = await readProfile(readId("user_id", user_id));
      if (profile === "missing") throw new AppError("notfound", "user_id: has no profile");
      return { profile: present(profile) };
    },

    /** Empties the fields that are left out. */
    async setProfile(request: wire.SetProfileRequest): Promise<wire.SetProfileResponse> {
      const profile = await deps.profiles.set(readDraft(request));
      await orUncached(deps.observe, "profile", () => deps.profileCache.drop(profile.userId));
      return { profile: present(profile) };
    },

    /** Profiles are sorted by the bytes of the user ids. */
    async listProfiles(request: wire.ListProfilesRequest): Promise<wire.ListProfilesResponse> {
      const { prefix } = request;
      const fault = prefix === "" ? undefined : storedIdFault(prefix);
      if (fault !== undefined) throw invalid("prefix", fault);
      const page = deps.tokens.open<[string]>(["profiles", prefix], request, PROFILE_PAGES);
      const [after] = page.after ?? [""];
      const found = await deps.bounded(() => deps.profiles.list(prefix, after, page.limit));
      const { items, next_page_token } = page.pageOf(found, ({ userId }) => [userId]);
      return { profiles: items.map(present), next_page_token };
    },
  };
};

function createReadProfile({ profiles, profileCache, bounded, observe }: ProfileDeps) {
  const flights = new SingleFlight<Profile | "missing">();
  const fetch = async (user: string) => (await bounded(() => profiles.get(user))) ?? "missing";
  return async (user: string): Promise<Profile | "missing"> => {
    const cached = await orUncached(observe, "profile", () => profileCache.read(user));
    observe.read("profile", cached?.profile ? "cache" : cached ? "database" : "uncached");
    if (cached === undefined) return fetch(user);
    const { generation, profile } = cached;
    if (profile !== undefined) return profile;
    return flights.run(`${encodeId(user)}:${generation}`, async () => {
      const found = await fetch(user);
      const stored = await orUncached(observe, "profile", () => profileCache.fill(user, generation, found));
      if (stored === false) observe.superseded("profile");
      return found;
    });
  };
}

function readDraft({ user_id, display_name, bio, avatar_url }: wire.SetProfileRequest): ProfileDraft {
  return {
    userId: readId("user_id", user_id),
    displayName: readText("display_name", display_name, MAX_NAME),
    bio: readText("bio", bio, MAX_BIO),
    avatarUrl: readUrl("avatar_url", avatar_url),
  };
}

/** An empty text means that there is no picture. */
function readUrl(field: string, text: string): string {
  readText(field, text, MAX_URL);
  if (text !== "" && !(URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)))
    throw invalid(field, "must be an http or https URL");
  return text;
}

const present = ({ userId, displayName, bio, avatarUrl, updatedAt }: Profile): wire.Profile => ({
  user_id: userId,
  display_name: displayName,
  bio,
  avatar_url: avatarUrl,
  updated_at: updatedAt,
});
