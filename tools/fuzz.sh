#!/bin/sh
# Runs every fuzz test whose name matches $1, for $2 each.
set -eu

GO=${GO:-go}
listed=$($GO test -list '^Fuzz' ./...)

# The names of a package come before its line "ok <package> <time>".
tests=$(echo "$listed" | awk -v wanted="$1" '
	/^Fuzz/ { names[++n] = $1 }
	/^ok/   { for (i = 1; i <= n; i++) if (names[i] ~ wanted) print $2, names[i]; n = 0 }')
if [ -z "$tests" ]; then
	echo "fuzz: no fuzz test matches '$1'" >&2
	exit 1
fi

echo "$tests" | while read -r package name; do
	echo "== $package $name for $2"
	$GO test -run '^$' -fuzz "^$name\$" -fuzztime "$2" "$package"
done
