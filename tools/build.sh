#!/bin/sh
# Configures BUILD when needed, builds it, and gathers the programs in BUILD/bin.
#
#       tools/build.sh BUILD [meson options…]
#
# Options are taken on the first call and whenever they differ from the last one.  CC is honoured as by meson.
set -eu

build=${1:?usage: tools/build.sh BUILD [meson options]}
shift
cd "$(dirname "$0")/.."

# What a configured tree depends on beside the meson files: the options, and the tests that meson finds by name.
wish="$* ${CC:-} $(find tests bench -name '*.c' | LC_ALL=C sort | cksum)"
stamp=$build/.coppice-configured
quiet() {
        "$@" >"$build.log" 2>&1 || {
                cat "$build.log" >&2
                return 1
        }
        rm -f "$build.log"
}
if [ ! -f "$build/build.ninja" ]; then
        quiet meson setup "$build" "$@"
elif [ "$(cat "$stamp" 2>/dev/null)" != "$wish" ]; then
        quiet meson setup --reconfigure "$build" "$@"
fi
quiet ninja -C "$build" build.ninja # what ninja does by itself, but loudly
printf '%s\n' "$wish" >"$stamp"
ninja -C "$build" --quiet
tools/link-bin.sh "$build"
