#!/bin/sh
# Installs the Debian packages that Coppice needs; says nothing and asks nothing when all are there.
#
#       tools/deps.sh           everything: to build, to run, to test
#       tools/deps.sh run       what make and make demo need
#       tools/deps.sh --list    prints the names
# shellcheck disable=SC2086 # the lists are split into words on purpose
set -eu

run="gcc libc6-dev make meson ninja-build pkg-config
     libjansson-dev libssl-dev libsqlite3-dev libzmq3-dev libseccomp-dev libcap-dev libzstd-dev libxxhash-dev libarchive-dev
     libmicrohttpd-dev libcurl4-openssl-dev libmnl-dev
     mmdebstrap debian-archive-keyring skopeo umoci jq zstd libarchive-tools attr xz-utils bzip2
     nftables iproute2 uidmap ca-certificates curl python3"
dev="clang clang-format clang-tidy libclang-rt-14-dev llvm universal-ctags shellcheck git
     python3-pytest python3-yaml python3-jsonschema python3-zmq python3-jupyter-client python3-ipykernel
     python3-nbformat
     bubblewrap strace gdb sqlite3
     python3-numpy python3-pandas python3-matplotlib golang-go redis-server mariadb-server-core mariadb-client-core
     libjemalloc2 libmimalloc2.0"

case ${1:-all} in
--list) printf '%s\n' $run $dev; exit ;;
run) want=$run ;;
all) want="$run $dev" ;;
*) echo "usage: tools/deps.sh [run|all|--list]" >&2; exit 2 ;;
esac

# One dpkg-query for all: a missing name costs nothing when the list is complete.
missing=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' $want 2>/dev/null |
        awk '$1 == "ii" { print $2 }' | sort -u >"${TMPDIR:-/tmp}/coppice-have.$$"
        printf '%s\n' $want | sort -u | comm -23 - "${TMPDIR:-/tmp}/coppice-have.$$"
        rm -f "${TMPDIR:-/tmp}/coppice-have.$$")
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || {
                echo "deps: these packages are missing and there is no sudo to install them:" $missing >&2
                exit 1
        }
        as_root=sudo
fi
echo "deps: installing" $missing
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $as_root apt-get update -qq &&
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing; } \
        >"$log" 2>&1 </dev/null; then
        tail -n 30 "$log" >&2
        echo "deps: apt-get failed, see above" >&2
        exit 1
fi
