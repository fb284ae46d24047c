# shellcheck shell=bash
# Recipes: a folder that says how to build an image.
#
#   recipe.json   {"name", "suite", "packages": [..], "path_exclude": [..], "path_include": [..],
#                  "late": {FOLDER: PATH_IN_IMAGE}, "defaults": {..}}
#   files/        laid over the root after the packages are in (owner root, modes 755 and 644)
#   setup.sh      run in the image as root at the end, with the network of the host
#   FOLDER/       each "late" folder is copied in last and byte-compiled. These are what changes often: all the rest
#                 is the base, which can be kept and started from (--base-only, --base)

# Raise it when the tool starts to make something else of the same recipe.
RECIPE_FORMAT=1

recipe_check() {
	[[ -f $1/recipe.json ]] || fail no_recipe "$1 has no recipe.json; name a recipe folder such as images/code-interpreter"
	jq -e '
		def strings: type == "array" and all(.[]; type == "string");
		(.name | type == "string" and test("^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")) and
		(.suite | type == "string" and test("^[a-z0-9.-]+$")) and
		(.packages | strings and all(.[]; test("^[a-z0-9][a-z0-9.+:-]*$"))) and
		(.path_exclude // [] | strings) and (.path_include // [] | strings) and
		(.late // {} | type == "object" and all(to_entries[]; (.key | test("^[A-Za-z0-9._-]+$")) and
			(.value | type == "string" and test("^/") and (split("/") | index("..") | not)))) and
		(.defaults | type == "object" and has("user") and has("uid") and has("gid") and has("home") and has("workdir"))
	' "$1/recipe.json" >/dev/null ||
		fail bad_recipe "$1/recipe.json is not valid JSON or misses a field; libexec/image/recipe.sh lists them"
}

# recipe_get DIR FILTER: raw output of jq on the recipe.
recipe_get() {
	jq -r "$2" "$1/recipe.json"
}

# The files of a recipe that matter for the image, NUL-separated and sorted. $2: "base" leaves the late folders out.
recipe_files() {
	local -a skip=(-name __pycache__ -o -name '*.pyc' -o -path ./README.md)
	local late
	if [[ $2 == base ]]; then
		recipe_get "$1" '.late // {} | keys[]' | while IFS= read -r late; do
			skip+=(-o -path "./$late")
		done
	fi
	(cd -- "$1" && find . \( "${skip[@]}" \) -prune -o -type f -print0) | LC_ALL=C sort -z
}

# A short hash over everything that decides what `build` makes of the recipe, but for the packages' versions.
recipe_id() {
	{
		printf 'format %s\narch %s\n' "$RECIPE_FORMAT" "$(dpkg --print-architecture 2>/dev/null || uname -m)"
		cd -- "$1"
		recipe_files . "$2" | while IFS= read -r -d '' file; do
			printf '%q %s ' "$file" "$([[ -x $file ]] && echo x)"
			sha256sum <"$file"
		done
	} | sha256sum | cut -c 1-16
}

# Is BASE what `build RECIPE --base-only` would make?
recipe_check_base() {
	local want have
	[[ -d $2/rootfs && -f $2/image.json ]] ||
		fail bad_base "$2 is no image; make the base with: coppice-image build $1 $2 --base-only"
	want=$(recipe_id "$1" base)
	have=$(jq -r '.recipe.base_id // "none"' "$2/image.json")
	[[ $want == "$have" ]] || fail bad_base \
		"$2 was made from another recipe or with options (base $have, wanted $want); make it anew with build --base-only"
}
