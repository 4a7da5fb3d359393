#!/bin/bash
# Starts PostgreSQL as the official image does, as far as tests can tell:
#
#   POSTGRES_USER              superuser to create (default postgres)
#   POSTGRES_PASSWORD          its password; required unless the method is trust
#   POSTGRES_DB                database to create (default: the user's name)
#   POSTGRES_INITDB_ARGS       further arguments of initdb
#   POSTGRES_HOST_AUTH_METHOD  method for TCP clients (default: scram-sha-256)
#
# The first start initialises the cluster with a server that listens on its
# socket only, so whoever can connect over TCP meets the finished server, and so
# "ready to accept connections" is logged twice, which is what waiting clients
# of the official image look for.
set -euo pipefail

as_postgres() {
	setpriv --reuid=postgres --regid=postgres --init-groups "$@"
}

# Not only "postgres -c …" but also bare flags start the server, as in the
# official image; anything else is a command to run instead.
if [ "${1:-postgres}" = postgres ]; then
	[ $# -eq 0 ] || shift
elif [ "${1:0:1}" != - ]; then
	exec "$@"
fi

: "${POSTGRES_USER:=postgres}"
: "${POSTGRES_PASSWORD:=}"
: "${POSTGRES_DB:=$POSTGRES_USER}"
: "${POSTGRES_INITDB_ARGS:=}"
: "${POSTGRES_HOST_AUTH_METHOD:=}"
export HOME=/var/lib/postgresql

# /var/run is a fresh tmpfs under some runtimes; the socket needs its directory.
install -d -o postgres -g postgres -m 2775 /var/run/postgresql
install -d -o postgres -g postgres -m 0700 "$PGDATA"

if [ ! -s "$PGDATA/PG_VERSION" ]; then
	if [ -z "$POSTGRES_PASSWORD" ] && [ "$POSTGRES_HOST_AUTH_METHOD" != trust ]; then
		echo "entrypoint: POSTGRES_PASSWORD is empty; set it, or POSTGRES_HOST_AUTH_METHOD=trust" >&2
		exit 1
	fi

	args=()
	if [ -n "$POSTGRES_PASSWORD" ]; then
		# A file, because an argument would show in the process list.
		pwfile=$(mktemp)
		chown postgres "$pwfile"
		printf '%s\n' "$POSTGRES_PASSWORD" >"$pwfile"
		args+=(--pwfile="$pwfile")
	fi
	# Word splitting and quotes in POSTGRES_INITDB_ARGS work as in the official
	# image, which evaluates it too.
	eval "args+=($POSTGRES_INITDB_ARGS)"
	as_postgres initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" "${args[@]}"
	[ -z "${pwfile:-}" ] || rm -f "$pwfile"

	printf '\nhost all all all %s\n' "${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" >>"$PGDATA/pg_hba.conf"

	# The caller's settings hold here too: fsync=off makes this much faster.
	server=$(printf '%q ' "$@" -c listen_addresses= -p 5432)
	as_postgres pg_ctl --pgdata="$PGDATA" --wait --silent --options="$server" start
	if [ "$POSTGRES_DB" != postgres ]; then
		# On standard input, since psql does not expand variables in --command.
		as_postgres psql --no-psqlrc --quiet -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
			-v db="$POSTGRES_DB" <<<'CREATE DATABASE :"db"'
	fi
	as_postgres pg_ctl --pgdata="$PGDATA" --wait --silent --mode=fast stop
	echo "entrypoint: cluster initialised"
fi

# exec, and setpriv rather than runuser or su: PostgreSQL becomes process 1, so
# Docker's signals reach it. Behind a wrapper a stop takes ten seconds.
exec setpriv --reuid=postgres --regid=postgres --init-groups \
	postgres -D "$PGDATA" -c listen_addresses='*' "$@"
