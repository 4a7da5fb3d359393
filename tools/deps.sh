#!/bin/sh
# Fails if a package imports, or the library's module requires, what it must not. The linter looks at single imports;
# this looks at everything that is reached through them.
set -eu

GO=${GO:-go}
module=$($GO list -m)
dialects_and_drivers='^(github\.com/uptrace/bun/(dialect/[a-z]+dialect|driver)|github\.com/jackc/|github\.com/lib/pq|modernc\.org/|github\.com/mattn/go-sqlite3|github\.com/ncruces/go-sqlite3|github\.com/go-sql-driver/)'
failed=0

# reached PACKAGES: what their non-test code reaches outside the standard library.
reached() {
	$GO list -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' "$@"
}

# check WHAT MATCHES: complains of MATCHES unless they are empty.
check() {
	if [ -n "$2" ]; then
		echo "deps: $1:"
		echo "$2" | sed 's/^/  /'
		failed=1
	fi
}

all=$(reached ./...)
check "no package may reach a bun dialect or a driver: the host brings those" \
	"$(echo "$all" | grep -E "$dialects_and_drivers" || true)"

core=$(reached ./locks/...)
check "locks must reach the standard library and itself only" \
	"$(echo "$core" | grep -Ev "^$module/locks(/|\$)" || true)"

store=$(reached ./bunstore/...)
check "bunstore must reach no HTTP framework and no HTTP face" \
	"$(echo "$store" | grep -E "^(github\.com/labstack/|$module/(echolock|locks/lockhttp)(/|\$))" || true)"

face=$(reached ./echolock/...)
check "echolock must reach no database" \
	"$(echo "$face" | grep -E "^(github\.com/uptrace/|$module/bunstore(/|\$))" || true)"

# What is in this list is in the module graph of every importer.
modules=$($GO list -m -f '{{.Path}}' all)
check "containers, PostgreSQL's drivers and the wakers must stay in the modules of their own" \
	"$(echo "$modules" | grep -E "^(github\.com/(testcontainers|docker|moby|jackc|lib/pq|mattn/go-sqlite3|uptrace/bun/driver)|$module/)" || true)"

# waker NAME DRIVER: a module that has this driver, and neither another one nor the library.
waker() {
	reached=$(cd "bunstore/$1" && reached ./...)
	check "$1 must reach no bun dialect, no driver but its own, and nothing of the library" \
		"$(echo "$reached" | grep -E "$dialects_and_drivers|^$module/" | grep -Ev "^($2|$module/bunstore/$1)(/|\$)" || true)"
	check "$1 must not require the library, which it need not keep up with" \
		"$(cd "bunstore/$1" && $GO list -m -f '{{.Path}}' all | grep -Fx "$module" || true)"
}
waker pgxwaker 'github\.com/jackc'
waker pgdriverwaker 'github\.com/uptrace/bun/driver/pgdriver'

if [ "$failed" = 0 ]; then
	echo "deps: every arrow points the right way"
fi
exit "$failed"
