# Restores the newest backup into a PostgreSQL of this pod's own, and fails if there is none, if it is too old, or if it
# cannot be restored. Variables: BACKUPS, the folder; MAX_AGE_HOURS; WORK, an empty folder.
set -eu

newest=$(find "$BACKUPS" -type f -printf '%T@ %p\n' | sort -rn | head -n 1 | cut -d ' ' -f 2-)
[ -n "$newest" ] || { echo "there is no file in $BACKUPS" >&2; exit 1; }
echo "the newest backup is $newest"
[ -n "$(find "$newest" -mmin "-$((MAX_AGE_HOURS * 60))")" ] || { echo "it is older than $MAX_AGE_HOURS hours" >&2; exit 1; }

# The images of PostgreSQL have its programs on the PATH.
export PGHOST="$WORK" PGUSER=check PGDATABASE=check
initdb --pgdata="$WORK/data" --username=check --auth=trust --no-sync >/dev/null
trap 'pg_ctl --pgdata="$WORK/data" --mode=immediate stop >/dev/null' EXIT
pg_ctl --pgdata="$WORK/data" --log="$WORK/log" --options="-k $WORK -c listen_addresses='' -c fsync=off" --wait start >/dev/null
createdb
pg_restore --no-owner --no-privileges --exit-on-error --dbname=check "$newest"

# A backup of another database can be restored as well.
ask() { psql -AtXc "SELECT $1"; }
[ -n "$(ask "to_regclass('public.avion_migrations')")" ] || { echo "it is no backup of this service" >&2; exit 1; }
for table in users.followings posts.drops; do
  [ -z "$(ask "to_regclass('$table')")" ] || echo "$table: $(ask "count(*) FROM $table") rows"
done
echo "it can be restored"
