import type * as wire from "../gen/avion/users.js";
import { AppError, invalid } from "../kernel/errors.js";
import { readId, readText, storedIdFault } from "../kernel/fields.js";
import { encodeId } from "../kernel/ids.js";
import { type PageLimits, type PageTokens, readSize } from "../kernel/paging.js";
import { SingleFlight } from "../kernel/sharing.js";
import type { Bounded } from "./bounded.js";
import type { ProfileCache } from "./cache.redis.js";
import { orUncached } from "./lists.js";
import type { ObserveUsers } from "./observe.js";
import type { Profile, ProfileDraft, ProfileStore } from "./profiles.sql.js";

/** A page of profiles must fit into gRPC's 4 MiB. */
const PROFILE_PAGES: PageLimits = { usual: 100, most: 500 };
const MAX_NAME = 100;
const MAX_BIO = 1_000;
const MAX_URL = 500;

export interface ProfileDeps {
  readonly profiles: ProfileStore;
  readonly profileCache: ProfileCache;
  readonly bounded: Bounded;
  readonly tokens: PageTokens;
  readonly observe: Pick<ObserveUsers, "read" | "superseded" | "cacheFailed">;
}

/** @throws AppError `invalid` naming the field; `notfound` if the user has no profile */
export function getProfile({ profiles, profileCache, bounded, observe }: ProfileDeps) {
  const flights = new SingleFlight<Profile | "missing">();
  const fetch = async (user: string) => (await bounded(() => profiles.get(user))) ?? "missing";
  const read = async (user: string): Promise<Profile | "missing"> => {
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
  return async ({ user_id }: wire.GetProfileRequest): Promise<wire.GetProfileResponse> => {
    const profile = await read(readId("user_id", user_id));
    if (profile === "missing") throw new AppError("notfound", "user_id: nobody set a profile");
    return { profile: present(profile) };
  };
}

/** SetProfile empties the fields that are left out. @throws AppError `invalid` naming the field */
export function setProfile(deps: ProfileDeps) {
  return async (request: wire.SetProfileRequest): Promise<wire.SetProfileResponse> => {
    const profile = await deps.profiles.set(readDraft(request));
    await orUncached(deps.observe, "profile", () => deps.profileCache.drop(profile.userId));
    return { profile: present(profile) };
  };
}

/** ListProfiles, by the bytes of the user ids. @throws AppError `invalid` naming the field */
export function listProfiles(deps: ProfileDeps) {
  return async (request: wire.ListProfilesRequest): Promise<wire.ListProfilesResponse> => {
    const { prefix, page_size, page_token } = request;
    const fault = prefix === "" ? undefined : storedIdFault(prefix);
    if (fault !== undefined) throw invalid("prefix", fault);
    const size = readSize("page_size", page_size, PROFILE_PAGES);
    const list = ["profiles", prefix] as const;
    const [after] = deps.tokens.read<[string]>(list, page_token) ?? [""];
    const found = await deps.bounded(() => deps.profiles.list(prefix, after, size + 1));
    const { items, nextPageToken } = deps.tokens.page(list, found, size, ({ userId }) => [userId]);
    return { profiles: items.map(present), next_page_token: nextPageToken };
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

/** Empty: no picture. */
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
