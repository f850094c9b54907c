-- A thread has the tombstones of replies that something replies to.
CREATE INDEX drops_deleted_replies ON posts.drops (reply_to, drop_id)
  WHERE reply_to IS NOT NULL AND deleted_at IS NOT NULL;
CREATE INDEX remote_objects_deleted_replies ON posts.remote_objects (reply_to, drop_id)
  WHERE reply_to IS NOT NULL AND deleted_at IS NOT NULL;
