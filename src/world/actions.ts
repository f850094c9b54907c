import { v7 } from "uuid";
import type { WorldDrop } from "./drops.js";
import type { Edge } from "./graph.js";
import type { DropDraft, World } from "./world.js";

/** Sends one event; rejects where nobody can have got it. */
export type Publish = (channel: string, payload: string) => Promise<void>;

export interface ActionsDeps {
  readonly world: World;
  readonly publish: Publish;
  /** Names this run in the events; fresh each time, for its seq starts at 1. */
  readonly producer?: string;
}

/** What an action passes on beside the change itself. */
export interface ActionContext {
  readonly traceparent?: string | undefined;
}

/** A drop that came by ActivityPub; with an actor it goes to the actor's followers too. */
export interface RemoteDrop {
  readonly drop_id: string;
  readonly created_at?: number;
  readonly user_id?: string;
}

/** Everything people do in the world. */
export interface Actions {
  post(draft: Omit<DropDraft, "remote" | "changed_at">, context?: ActionContext): Promise<WorldDrop>;
  delete(dropId: string, context?: ActionContext): Promise<WorldDrop | undefined>;
  follow(follower: string, following: string, context?: ActionContext): Promise<Edge | undefined>;
  unfollow(follower: string, following: string, context?: ActionContext): Promise<Edge | undefined>;
  receiveRemote(drop: RemoteDrop, context?: ActionContext): Promise<WorldDrop | undefined>;
}

const REMOTE_AHEAD_MS = 5 * 60_000;

/**
 * Creates the actions. Each changes the world first and publishes then, so that
 * whoever hears of an event finds it in the upstreams. A change that changes
 * nothing publishes nothing and is undefined. Where publishing fails the change
 * stands and the action rejects: the seq it used up is the gap by which the
 * bridge notices.
 */
export function createActions({ world, publish, producer = `world-${v7()}` }: ActionsDeps): Actions {
  let seq = 0;

  async function announce(channel: string, event: object, context: ActionContext = {}): Promise<void> {
    seq += 1;
    await publish(channel, JSON.stringify({ ...event, producer, seq, traceparent: context.traceparent }));
  }

  return {
    async post(draft, context) {
      const drop = world.addDrop({ ...draft, remote: false, changed_at: undefined });
      await announce("drop_created", createdEvent(drop), context);
      return drop;
    },
    async delete(dropId, context) {
      const drop = world.deleteDrop(dropId);
      if (drop === undefined) return undefined;
      const event = drop.remote ? { drop_id: dropId } : { drop_id: dropId, user_id: drop.user_id };
      await announce("drop_deleted", event, context);
      return drop;
    },
    async follow(follower, following, context) {
      const edge = world.follow(follower, following);
      if (edge !== undefined) await announce("user_followed", edgeEvent(edge), context);
      return edge;
    },
    async unfollow(follower, following, context) {
      const edge = world.unfollow(follower, following);
      if (edge !== undefined) await announce("user_unfollowed", edgeEvent(edge), context);
      return edge;
    },
    async receiveRemote(remote, context) {
      // Other servers send the same drop again; the first one counts.
      if (world.drop(remote.drop_id) !== undefined) return undefined;
      const drop = addRemote(world, remote);
      const event = { drop_id: drop.drop_id, created_at: drop.created_at, user_id: drop.user_id || undefined };
      await announce("ap_drop_received", event, context);
      return drop;
    },
  };
}

function addRemote(world: World, remote: RemoteDrop): WorldDrop {
  const now = world.now();
  const claimed = remote.created_at ?? now;
  // Clamped here as the timeline service does, so that a rebuild finds the
  // drop at the time it was fanned out with.
  const created_at = claimed > now + REMOTE_AHEAD_MS ? now : claimed;
  return world.addDrop({ drop_id: remote.drop_id, user_id: remote.user_id ?? "", created_at, remote: true });
}

function createdEvent({ drop_id, user_id, visibility, created_at, recipients }: WorldDrop): object {
  const event = { drop_id, user_id, visibility, created_at };
  return visibility === "direct" ? { ...event, recipients } : event;
}

function edgeEvent({ follower_id, following_id, version }: Edge): object {
  return { follower_id, following_id, version };
}
