/** The door of the state: the only file of this folder that other folders import. */
export type { AuthorWriter } from "./big-authors/author-writer.redis.js";
export {
  type AuthorRegistry,
  authorAsJson,
  type ModeChoice,
} from "./big-authors/index.js";
export {
  currentOf,
  type Due,
  isMerged,
  isPushed,
  isSettled,
  PULL_GRACE_MS,
  type Published,
  type PulledAuthors,
  type PullRegistry,
  type PullState,
} from "./big-authors/pulled.js";
export type { Pulls } from "./big-authors/pulls.redis.js";
export type { AnalysisCache } from "./caches/analyses.redis.js";
export { type ListCache, type ListName, MAX_CACHED_IDS } from "./caches/user-lists.redis.js";
export type { Contents, ReadEntry, StoredEntry } from "./entries/audited.redis.js";
export { Follows } from "./entries/follows.js";
export type { HomeBounds } from "./entries/home-looks.redis.js";
export type { Homes } from "./entries/homes.redis.js";
export {
  createJudge,
  createListReaders,
  LIST_READER_AGE_MS,
  type ListReader,
  type ListReaders,
  type OwnedList,
} from "./entries/list-judge.js";
export { present } from "./entries/page-response.js";
export type { ReadCache } from "./entries/read-cache.redis.js";
export { type Shown, type ShownEntry, shownAmong } from "./entries/reposts-once.js";
export type { Snapshot, TimelineStore } from "./entries/store.redis.js";
export { type Incomplete, incompleteOf, isIncomplete, SPARE, type Stored } from "./entries/stored.js";
export { withoutHidden } from "./entries/without-hidden.js";
export {
  type Audience,
  audienceOf,
  type HomeAddition,
  type HomeRemoval,
  type SharedAddition,
  type SignedEntry,
  type TimelineWriter,
  usersOf,
} from "./entries/writer.redis.js";
export { erasedUser, refuseErased } from "./erased/erased.redis.js";
export { idsIn, isBroken, type NamesErased } from "./erased/erased-letters.js";
export {
  createForgetHandler,
  type Erased,
  type ErasureReport,
  endStep,
  type Forget,
  isRemoteActor,
  withoutErasedOriginals,
  writeUnlessErased,
} from "./erased/erasures.js";
export {
  authorsOf,
  dropsWithoutErased,
  usersOfEdge,
  usersOfRelation,
  usersOfStanding,
  withoutErased,
} from "./erased/without-erased.js";
export type { Fenced } from "./fenced.redis.js";
export {
  type Deletion,
  type EdgeChange,
  type EdgeState,
  edgeName,
  edgesIn,
  type Fences,
  generationSince,
  writeUnlessDeleted,
} from "./fences/types.js";
export type { HidingChange, MadeChange } from "./hidden/changes.redis.js";
export { Hidden, type HiddenUsers, type Hiding } from "./hidden/hidden.js";
export type { HiddenStore } from "./hidden/hidden.redis.js";
export type { RelationWriter, Viewers } from "./hidden/relations.redis.js";
export { HOURLY, type Quota, quotaHeaders, type RateLimit } from "./limits/analyses.redis.js";
export { type Limited, type Use, unlessAway } from "./limits/limits.redis.js";
export type { TokenBucket } from "./limits/source-tokens.redis.js";
export type { Listeners } from "./listeners/listeners.redis.js";
export type { ListenersAmong } from "./listeners/listening.redis.js";
export { isRefused, type LogoutsAmong } from "./listeners/logouts.redis.js";
export {
  type Connection,
  connectionId,
  type Moment,
  type StreamRegistryStore,
} from "./listeners/registry.redis.js";
export {
  FILL_WINDOW_MS,
  type FillStore,
  fillAsJson,
  fillAsText,
  isFilled,
  type LogFill,
  readFill,
  windowRange,
  windowsOf,
} from "./messages/log-fill.redis.js";
export type { FanoutSize, Progress, Recipients } from "./messages/progress.redis.js";
export type { Publishing } from "./messages/publishing.redis.js";
export type { ReconciledUpTo, Unreconciled } from "./messages/reconciled.redis.js";
export { affectedBy, type WaitingEvent } from "./messages/waiting.redis.js";
export { checkPlaces, keepPlaces } from "./servers/places.redis.js";
export { checkRights, createRightsWatch, writeFault } from "./servers/rights.redis.js";
export type {
  Backlog,
  Behind,
  IdentityRecord,
  LogState,
  ServerIdentity,
  SetAside,
} from "./servers/server-identity.redis.js";
export { changeOf as standingChangeOf } from "./standing/standings.grpc.js";
export type { ReadStandings, StandingChange, Standings, VeilUsers } from "./standing/standings.redis.js";
export { isOfSuspended, isUnlisted, NOBODY, NOTHING_HIDDEN } from "./standing/unlisted.js";
export type { Veiled } from "./standing/veiled.redis.js";
export {
  openErasedList,
  openRedisState,
  openState,
  type RedisState,
  type State,
  type StateWraps,
} from "./state.redis.js";
export {
  authorOf,
  authorTimelineOf,
  FLOOR,
  GLOBAL,
  HOMES,
  homeOf,
  kindOf,
  LOCAL,
  listTimelineOf,
  userOfHome,
} from "./timelines.js";
