"""UserService and PostService for avion-timeline in one page: Python, grpcio and SQLite.

    pip install grpcio grpcio-tools redis
    python3 docs/examples/upstream.py 127.0.0.1:50061 redis://127.0.0.1:6379 social.db

It serves what the timeline service calls, and four writes to try it with: Follow, Unfollow, CreateDrop and DeleteDrop.
All other methods answer UNIMPLEMENTED, which docs/integration.md allows: nobody is hidden, and all drops are kept.
"""

import json
import sqlite3
import sys
import threading
import time
import uuid
from concurrent import futures
from pathlib import Path

import grpc
import redis

sys.path.insert(0, str(Path(__file__).parents[2] / "proto"))
users, user_services = grpc.protos_and_services("avion/users.proto")
posts, post_services = grpc.protos_and_services("avion/posts.proto")

# Every change leaves its time: reconciliation asks what has changed since. A follow that ended and a drop that was
# deleted stay as rows, so that their versions and ids never start again.
SCHEMA = """
CREATE TABLE IF NOT EXISTS follows (follower TEXT, following TEXT, version INTEGER, active INTEGER, changed_at INTEGER,
                                    PRIMARY KEY (follower, following));
CREATE INDEX IF NOT EXISTS followers ON follows (following, follower) WHERE active;
CREATE INDEX IF NOT EXISTS changed_follows ON follows (changed_at);
CREATE TABLE IF NOT EXISTS drops (drop_id TEXT PRIMARY KEY, user_id TEXT, visibility INTEGER, created_at INTEGER,
                                  reply_to TEXT, reply_to_author TEXT, mentions TEXT, deleted INTEGER, changed_at INTEGER);
CREATE INDEX IF NOT EXISTS drops_of_user ON drops (user_id, created_at DESC, drop_id DESC) WHERE NOT deleted;
CREATE INDEX IF NOT EXISTS changed_drops ON drops (changed_at);
"""
DROP = "drop_id, user_id, visibility, created_at, reply_to, reply_to_author, mentions, deleted"
FOREVER = 2**63 - 1


class Store:
    """Each statement is a transaction, so that an event is published only once its change can be read."""

    def __init__(self, path, redis_url):
        self.connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.connection.executescript(SCHEMA)
        self.lock = threading.Lock()
        self.redis = redis.Redis.from_url(redis_url)

    def rows(self, sql, *values):
        with self.lock:
            return self.connection.execute(sql, values).fetchall()

    def publish(self, channel, **event):
        try:
            self.redis.publish(channel, json.dumps(event))
        except redis.RedisError as error:
            print(f"{channel} is lost, and left to the reconciliation: {error}", file=sys.stderr)


def page_of(rows, size, key):
    """A page of `size` of the rows, of which one more was read, and the token of the next one."""
    return rows[:size], json.dumps(key(rows[size - 1])) if len(rows) > size else ""


class Users(user_services.UserServiceServicer):
    def __init__(self, store):
        self.store = store

    def list_users(self, request, wanted, given):
        size, after = request.page_size or 1_000, json.loads(request.page_token or '""')
        sql = f"SELECT {wanted} FROM follows WHERE active AND {given} = ? AND {wanted} > ? ORDER BY {wanted} LIMIT ?"
        found, token = page_of(self.store.rows(sql, request.user_id, after, size + 1), size, lambda row: row[0])
        count = self.store.rows(f"SELECT count(*) FROM follows WHERE active AND {given} = ?", request.user_id)
        return {"user_ids": [user for (user,) in found], "next_page_token": token, "total_count": count[0][0]}

    def GetFollowersList(self, request, context):
        return users.GetFollowersListResponse(**self.list_users(request, "follower", "following"))

    def GetFollowingList(self, request, context):
        return users.GetFollowingListResponse(**self.list_users(request, "following", "follower"))

    def ListFollowChanges(self, request, context):
        size, after = request.page_size or 500, json.loads(request.page_token or '[-1, "", ""]')
        sql = """SELECT follower, following, version, active, changed_at FROM follows WHERE changed_at >= ? AND changed_at < ?
                 AND (changed_at, follower, following) > (?, ?, ?) ORDER BY changed_at, follower, following LIMIT ?"""
        rows = self.store.rows(sql, request.since, request.until or FOREVER, *after, size + 1)
        found, token = page_of(rows, size, lambda row: (row[4], row[0], row[1]))
        names = ("follower_id", "following_id", "version", "following", "changed_at")
        changes = [users.FollowChange(**dict(zip(names, (*row[:3], bool(row[3]), row[4])))) for row in found]
        return users.ListFollowChangesResponse(changes=changes, next_page_token=token)

    def Follow(self, request, context):
        sql = """INSERT INTO follows VALUES (?, ?, 1, 1, ?) ON CONFLICT DO UPDATE
                 SET version = version + 1, active = 1, changed_at = excluded.changed_at WHERE NOT active RETURNING version"""
        return users.FollowResponse(**self.changed("user_followed", request, sql, (*pair(request), now())))

    def Unfollow(self, request, context):
        sql = """UPDATE follows SET version = version + 1, active = 0, changed_at = ?
                 WHERE follower = ? AND following = ? AND active RETURNING version"""
        return users.UnfollowResponse(**self.changed("user_unfollowed", request, sql, (now(), *pair(request))))

    def changed(self, channel, request, sql, values):
        for (version,) in self.store.rows(sql, *values):
            follower, following = pair(request)
            self.store.publish(channel, follower_id=follower, following_id=following, version=version)
            return {"changed": True, "version": version}
        return {"changed": False}


class Posts(post_services.PostServiceServicer):
    def __init__(self, store):
        self.store = store

    def GetDropsByUserID(self, request, context):
        before = request.before or FOREVER
        if request.max_id and not request.before:
            for (before,) in self.store.rows("SELECT created_at FROM drops WHERE drop_id = ?", request.max_id):
                break
            else:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "max_id is no drop")
        sql = f"""SELECT {DROP} FROM drops WHERE user_id = ? AND NOT deleted
                 AND (created_at, drop_id) < (?, ?) ORDER BY created_at DESC, drop_id DESC LIMIT ?"""
        size = request.limit or 20
        rows = self.store.rows(sql, request.user_id, before, request.max_id, size + 1)
        return posts.GetDropsByUserIDResponse(drops=map(drop_of, rows[:size]), end=len(rows) <= size)

    def ListDrops(self, request, context):
        size, after = request.page_size or 500, json.loads(request.page_token or '[-1, ""]')
        sql = f"""SELECT {DROP}, changed_at FROM drops WHERE changed_at >= ? AND changed_at < ?
                 AND (changed_at, drop_id) > (?, ?) ORDER BY changed_at, drop_id LIMIT ?"""
        rows = self.store.rows(sql, request.since, request.until or FOREVER, *after, size + 1)
        found, token = page_of(rows, size, lambda row: (row[8], row[0]))
        return posts.ListDropsResponse(drops=map(drop_of, found), next_page_token=token)

    def CreateDrop(self, request, context):
        if request.visibility in (posts.VISIBILITY_UNSPECIFIED, posts.VISIBILITY_DIRECT):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "visibility: this example has no direct drops")
        # Ids that begin with the time sort as their drops do.
        created_at = now()
        drop_id = f"{created_at:012x}-{uuid.uuid4().hex}"
        parent = self.store.rows("SELECT user_id FROM drops WHERE drop_id = ?", request.reply_to)
        named = (request.reply_to, parent[0][0] if parent else "", json.dumps(list(request.mentions)))
        row = (drop_id, request.user_id, request.visibility, created_at, *named)
        self.store.rows("INSERT INTO drops VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?)", *row, created_at)
        visibility = posts.Visibility.Name(request.visibility).removeprefix("VISIBILITY_").lower()
        self.store.publish("drop_created", **fields_of(row) | {"visibility": visibility})
        names = ("drop_id", "user_id", "visibility", "created_at", "reply_to")
        return posts.CreateDropResponse(drop=posts.DropDetails(**dict(zip(names, row)), body=request.body))

    def DeleteDrop(self, request, context):
        sql = """UPDATE drops SET deleted = 1, changed_at = ? WHERE drop_id = ? AND user_id = ? AND NOT deleted
                 RETURNING drop_id"""
        for (drop_id,) in self.store.rows(sql, now(), request.drop_id, request.user_id):
            self.store.publish("drop_deleted", drop_id=drop_id, user_id=request.user_id)
        return posts.DeleteDropResponse()


def pair(request):
    return request.follower_id, request.following_id


def fields_of(row):
    """The fields of a drop that are set."""
    *known, mentions = row[:7]
    fields = zip(DROP.split(", "), (*known, json.loads(mentions)))
    return {name: value for name, value in fields if value}


def drop_of(row):
    return posts.Drop(**fields_of(row), deleted=bool(row[7]))


def now():
    return time.time_ns() // 1_000_000


def main(address, redis_url, path):
    store = Store(path, redis_url)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    user_services.add_UserServiceServicer_to_server(Users(store), server)
    post_services.add_PostServiceServicer_to_server(Posts(store), server)
    port = server.add_insecure_port(address)
    server.start()
    print(f"UserService and PostService on port {port}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
