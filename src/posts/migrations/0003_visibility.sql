-- Foreign drops have the visibility that their documents say. Replies that are neither public nor unlisted are not counted.
ALTER TABLE posts.remote_objects
  -- The numbers of avion.Visibility; 0 where it is no drop.
  ADD COLUMN visibility smallint NOT NULL DEFAULT 0 CHECK (visibility BETWEEN 0 AND 4),
  ADD COLUMN recipients text[] NOT NULL DEFAULT '{}';

CREATE FUNCTION pg_temp.object_of(document text) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN CASE WHEN jsonb_typeof(document::jsonb) = 'object' THEN document::jsonb ELSE '{}' END;
EXCEPTION WHEN OTHERS THEN
  RETURN '{}';
END $$;

CREATE FUNCTION pg_temp.addressed(object jsonb, fields text[]) RETURNS text[] LANGUAGE sql AS $$
  SELECT coalesce(array_agg(DISTINCT id), '{}') FROM (
    SELECT CASE WHEN jsonb_typeof(id) = 'string' THEN id #>> '{}' END AS id FROM unnest(fields) field
    CROSS JOIN LATERAL jsonb_array_elements(
      CASE jsonb_typeof(object -> field) WHEN 'array' THEN object -> field ELSE jsonb_build_array(object -> field) END
    ) one
    CROSS JOIN LATERAL (SELECT CASE jsonb_typeof(one) WHEN 'object' THEN one -> 'id' ELSE one END AS id) named
  ) ids WHERE id <> ''
$$;

WITH read AS (
  SELECT o.uri, o.actor_uri, pg_temp.object_of(o.document) AS object, pg_temp.object_of(a.document) ->> 'followers' AS named
  FROM posts.remote_objects o LEFT JOIN posts.remote_objects a ON a.uri = o.actor_uri AND a.kind = 2
  WHERE o.kind = 1
), told AS (
  SELECT uri, pg_temp.addressed(object, '{to}') AS first, pg_temp.addressed(object, '{cc}') AS second,
    pg_temp.addressed(object, '{to,cc,bto,bcc,audience}') AS everybody,
    CASE WHEN actor_uri = '' THEN '{}' ELSE ARRAY[coalesce(named, rtrim(actor_uri, '/') || '/followers')] END AS followers
  FROM read
), judged AS (
  SELECT uri, everybody, CASE
    WHEN first && '{https://www.w3.org/ns/activitystreams#Public,as:Public,Public}' THEN 1
    WHEN second && '{https://www.w3.org/ns/activitystreams#Public,as:Public,Public}' THEN 2
    WHEN everybody && followers THEN 3
    ELSE 4
  END AS visibility FROM told
)
UPDATE posts.remote_objects o SET visibility = j.visibility, recipients = CASE WHEN j.visibility < 4 THEN '{}' ELSE ARRAY(
  SELECT id FROM unnest(j.everybody) id
  WHERE octet_length(id) <= 128 AND id NOT IN ('https://www.w3.org/ns/activitystreams#Public', 'as:Public', 'Public')
  LIMIT 1000
) END
FROM judged j WHERE o.uri = j.uri;

WITH hidden AS (
  DELETE FROM posts.reactions r USING posts.drops d
  WHERE r.kind = 'reply' AND d.drop_id::text = r.actor_id AND d.visibility > 2
  RETURNING r.drop_id, r.counted
), sums AS (
  SELECT drop_id, count(*) FILTER (WHERE counted) AS replies FROM hidden GROUP BY drop_id
)
UPDATE posts.counts c SET replies = greatest(c.replies - sums.replies, 0) FROM sums WHERE c.drop_id = sums.drop_id;
