#!/bin/bash
# Prints the directory of the code-interpreter image that tests use, after building it there if it is absent.
#
#   tools/test-image.sh [RECIPE_DIR]
#
# The cache lies outside the tree and has two layers. The base (all packages, about a minute) is kept under the id of
# the recipe without its late folders; the image itself is the base as hard links plus the late folders, kept under
# the full id, so that a change to coppice_kernel costs seconds. Whoever comes while one is being made waits for it.
# Building speaks on stderr. Old entries go when they were not asked for in 14 days.

set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
tool=$here/../libexec/coppice-image
recipe=${1:-$here/../images/code-interpreter}
cache=${COPPICE_IMAGE_CACHE:-/var/cache/coppice/images}

mkdir -p -- "$cache"
exec 8>"$cache/.lock"
flock 8

# build OUTDIR OPTION...: progress to stderr, one line a stage when nobody watches.
build() {
	local out=$1
	shift
	[[ -d $out ]] && return
	"$tool" build "$recipe" "$out" "$@" 8>&- | jq --unbuffered -r \
		'"\(.stage)\(if .percent then " \(.percent)%" else "" end): \(.message)"' >&2
}

id=$("$tool" recipe-id "$recipe")
image=$cache/$id
if [[ ! -d $image ]]; then
	base=$cache/base-$("$tool" recipe-id "$recipe" --base)
	build "$base" --base-only
	touch -- "$base"
	build "$image" --base "$base"
	if [[ $(jq -r .recipe.id "$image/image.json") != "$id" ]]; then # a file was saved between naming and building
		rm -rf --one-file-system -- "$image"
		exec 8>&-
		exec "$0" "$@"
	fi
fi
touch -- "$image"
find "$cache" -mindepth 1 -maxdepth 1 -type d -mtime +14 -exec rm -rf --one-file-system -- {} +
printf '%s\n' "$image"
