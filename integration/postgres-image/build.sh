#!/bin/bash
# Builds a Docker image of PostgreSQL 15 from Debian packages, for machines that
# have Docker and a Debian mirror but no registry to pull the official image from.
#
#   build.sh          build the image unless it is there, print its tag
#   build.sh --tag    print the tag only
#
# The tag is the last line on standard output; progress goes to standard error.
# It contains a hash of everything the image is made from, so an image is built
# once per machine and again only when a recipe changes.
#
# Exit status: 0 done, 3 this machine lacks something that is needed (said on
# standard error), anything else is a failure of the build itself.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
suite=bookworm # the Debian release whose PostgreSQL is 15

say() { echo "postgres-image: $*" >&2; }
lacking() {
	say "$*"
	exit 3
}

command -v dpkg >/dev/null || lacking "dpkg not found: the image can only be built on Debian or a relative of it"
arch=$(dpkg --print-architecture)
hash=$({
	echo "$arch"
	cat "$here/build.sh" "$here/Dockerfile" "$here/entrypoint.sh"
} | sha256sum | cut -c1-12)
tag=rowlease-postgres:15-$hash

case ${1-} in
'') ;;
--tag)
	echo "$tag"
	exit 0
	;;
*)
	say "usage: build.sh [--tag]"
	exit 2
	;;
esac

command -v docker >/dev/null || lacking "docker not found"
have_image() { docker image inspect "$tag" >/dev/null 2>&1; }

if have_image; then
	echo "$tag"
	exit 0
fi

# Test packages run side by side and each may ask for the image: the second
# waits for the first and finds it. The lock is per user, since /tmp is shared.
exec 9>>"${TMPDIR:-/tmp}/rowlease-postgres-image.$(id -u).lock"
flock -n 9 || {
	say "waiting for another build"
	flock 9
}
if have_image; then
	echo "$tag"
	exit 0
fi

started=$SECONDS
work=$(mktemp -d "${TMPDIR:-/tmp}/rowlease-postgres-image.XXXXXXXX")
rootfs=rowlease-postgres-rootfs:$hash
cleanup() {
	# Only the name: the layers stay as long as the finished image needs them.
	docker image rm "$rootfs" >/dev/null 2>&1 || true
	rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs a command with its output in a log that is shown only if it fails.
quietly() {
	if ! "$@" >"$work/log" 2>&1 </dev/null; then
		tail -n 40 "$work/log" >&2
		say "failed: $1"
		return 1
	fi
}

apt_get() {
	quietly env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"
}

if ! command -v mmdebstrap >/dev/null; then
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		lacking "mmdebstrap not found: run 'apt-get install mmdebstrap' as root, or set ROWLEASE_POSTGRES_IMAGE to an image you have"
	fi
	say "installing mmdebstrap"
	apt_get update
	apt_get install --no-install-recommends mmdebstrap
fi

# The machine's own Debian mirror and proxy, whatever they are. On a relative of
# Debian, or before the first "apt-get update", no mirror is found here and
# mmdebstrap takes its default. The archive holds every suite, so the machine's
# own release need not be the one that is installed.
mirror=$(apt-get indextargets --format '$(REPO_URI)' \
	'Identifier: Packages' 'Origin: Debian' 'Label: Debian' 'Component: main' 2>/dev/null |
	grep -E '^https?://' | head -n 1 || true)
# A missing proxy line is no failure, hence "|| true".
apt-config dump | grep -E '^Acquire::(https?::)?([^ ]*::)?Proxy ' >"$work/apt.conf" || true

# Tests read no manuals, and JIT needs 150 MB of LLVM: PostgreSQL finds its
# library missing and goes on without. What makes a difference to a test stays:
# time zones, ICU and its collations, the contrib extensions. PgBouncer comes
# along (3 MB) for the tests that go through it, see internal/pgbouncer.
excludes=(
	'/usr/share/doc/*' '/usr/share/man/*' '/usr/share/info/*' '/usr/share/locale/*'
	'/usr/share/lintian/*' '/usr/share/bug/*'
	'/usr/lib/postgresql/*/lib/bitcode/*' '/usr/lib/postgresql/*/lib/llvmjit*'
	'/usr/lib/llvm-*' '/usr/lib/*/libLLVM*' '/usr/lib/*/libz3.so*'
)
options=()
for path in "${excludes[@]}"; do
	options+=(--dpkgopt="path-exclude=$path")
done

# The package would create a cluster that nobody uses; the file that says no is
# one of the package's own, hence force-confold. The hooks take out what is of
# this machine (mirror, proxy) and what was needed for installing only, like the
# manuals that update-alternatives insists on.
say "installing PostgreSQL 15 and PgBouncer for $arch${mirror:+ from $mirror}"
quietly mmdebstrap --variant=essential --include=postgresql-15,pgbouncer --components=main \
	--aptopt="$work/apt.conf" --aptopt='Acquire::Retries "3"' \
	--dpkgopt=force-confold "${options[@]}" \
	--essential-hook='mkdir -p "$1/etc/postgresql-common"' \
	--essential-hook='echo "create_main_cluster = false" >"$1/etc/postgresql-common/createcluster.conf"' \
	--customize-hook='rm -rf "$1"/etc/apt/sources.list* "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/var/log/*.log' \
	--customize-hook='rm -rf "$1"/usr/share/postgresql/*/man "$1"/usr/share/perl/*/pod' \
	--customize-hook='rm -rf "$1"/var/lib/dpkg/info/*.md5sums "$1"/var/lib/dpkg/*-old' \
	"$suite" "$work/rootfs.tar" ${mirror:+"$mirror"}

say "importing it into Docker"
quietly docker import "$work/rootfs.tar" "$rootfs"
rm "$work/rootfs.tar"
# A context of its own, so that the image holds what was hashed and no more.
mkdir "$work/context"
cp "$here/Dockerfile" "$here/entrypoint.sh" "$work/context/"
quietly docker build --build-arg "ROOTFS=$rootfs" --tag "$tag" "$work/context"

say "built $tag in $((SECONDS - started)) s"
echo "$tag"
