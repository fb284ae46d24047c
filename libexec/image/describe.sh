# shellcheck shell=bash
# image.json: what the daemon needs to know of an image, read from a root file system that a stranger may have made.
#
#   {"version": 1, "name", "created", "digest", "size_bytes", "files", "os": {"id", "version"},
#    "packages": [{"name", "version"}], "python_packages": [{"name", "version"}],
#    "defaults": {"user", "uid", "gid", "home", "workdir", "env": {}, "coppice_kernel": true when our kernel module is in},
#    "kernelspecs": [{"name", "argv", "display_name", "language", "interrupt_mode", "env"}],
#    "recipe": {"id", "base_id"} or null, "source": "recipe" | "dir" | "tar" | "oci"}

IMAGE_VERSION=1

# describe_write DIR NAME SOURCE DEFAULTS RECIPE: writes DIR/image.json for DIR/rootfs. The last two are JSON.
describe_write() {
	local dir=$1 name=$2 source=$3 defaults=$4 recipe=$5
	local root=$dir/rootfs tmp=$dir/tmp digest bytes files
	emit digest "hashing every file" null
	digest=$(rootfs_digest "$root")
	rootfs_measure "$root" | read -r bytes files
	read_os "$root" >"$tmp/os"
	read_packages "$root" >"$tmp/packages"
	read_python_packages "$root" >"$tmp/python"
	read_kernelspecs "$root" >"$tmp/kernelspecs"
	inside_file "$root" usr/lib/python3/dist-packages/coppice_kernel/__init__.py 65536 >/dev/null &&
		defaults=$(jq -c '.coppice_kernel = true' <<<"$defaults")
	jq -n --argjson version "$IMAGE_VERSION" --arg name "$name" --arg created "$(date -u +%FT%TZ)" \
		--arg digest "$digest" --argjson size "$bytes" --argjson files "$files" --arg source "$source" \
		--argjson defaults "$defaults" --argjson recipe "$recipe" --slurpfile os "$tmp/os" \
		--slurpfile packages "$tmp/packages" --slurpfile python "$tmp/python" --slurpfile specs "$tmp/kernelspecs" \
		'{version: $version, name: $name, created: $created, digest: $digest, size_bytes: $size, files: $files,
		  os: $os[0], packages: $packages[0], python_packages: $python[0], defaults: $defaults,
		  kernelspecs: $specs[0], recipe: $recipe, source: $source}' >"$dir/image.json"
	chmod 0644 -- "$dir/image.json"
}

# Lines of "name<TAB>version" to a JSON list, sorted, each once.
as_package_list() {
	jq -Rn '[inputs | split("\t") | select(length == 2) | {name: .[0], version: .[1]}] | unique'
}

read_os() {
	local file
	file=$(inside_file "$1" etc/os-release 65536) || file=/dev/null
	jq -Rn '
		def value: if test("^\".*\"$|^'\''.*'\''$") then .[1:-1] else . end;
		[inputs | capture("^(?<key>[A-Z_]+)=(?<value>.*)$")? | {(.key): (.value | value)}] | add // {} |
		{id: (.ID // "unknown"), version: (.VERSION_ID // "")}' "$file"
}

# Debian's, distroless' and Alpine's package databases.
read_packages() {
	local file dir
	{
		if file=$(inside_file "$1" var/lib/dpkg/status 67108864); then
			cat -- "$file"
		elif dir=$(inside "$1" var/lib/dpkg/status.d) && [[ -d $dir ]]; then
			find "$dir" -maxdepth 1 -type f ! -name '*.md5sums' -size -1024 -exec sed -e '$a\' {} \; -exec echo \;
		fi | awk -F ': ' '
			/^Package: / { name = $2; state = "installed" } /^Status: / { state = $2 } /^Version: / { version = $2 }
			/^$/ { put() } END { put() }
			function put() { if (name != "" && state ~ /installed$/ && state !~ /not-installed/) print name "\t" version
			                 name = "" }'
		if file=$(inside_file "$1" lib/apk/db/installed 67108864); then
			awk '/^P:/ { name = substr($0, 3) } /^V:/ { print name "\t" substr($0, 3) }' "$file"
		fi
	} | as_package_list
}

# By the names of the metadata folders: cheap, and right for what pip and distributions install.
read_python_packages() {
	local dir root=$1 found
	for dir in usr/lib usr/local/lib opt/conda/lib; do
		found=$(inside "$root" "$dir") && [[ -d $found ]] || continue
		find "$found" -mindepth 3 -maxdepth 3 -path '*/python3*/*-packages/*' \
			\( -name '*.dist-info' -o -name '*.egg-info' \) -printf '%f\n'
	done | sed -nE 's/^([A-Za-z0-9._]+)-([0-9][^-]*)(-py[0-9.]+)?\.(dist|egg)-info$/\1\t\2/p' | as_package_list
}

read_kernelspecs() {
	local dir found file name
	# Where two have the same name, Jupyter takes the first of this order.
	for dir in opt/conda/share usr/local/share usr/share; do
		found=$(inside "$1" "$dir/jupyter/kernels") && [[ -d $found ]] || continue
		for name in "$found"/*/; do
			name=${name%/} name=${name##*/}
			file=$(inside_file "$1" "$dir/jupyter/kernels/$name/kernel.json" 1048576) || continue
			jq -c --arg name "${name,,}" '
				select(type == "object" and (.argv | type == "array" and length > 0 and all(.[]; type == "string")) and
				       ($name | test("^[a-z0-9._-]{1,128}$"))) |
				{name: $name, argv, display_name: (.display_name // $name | tostring),
				 language: (.language // "" | tostring),
				 interrupt_mode: (if .interrupt_mode == "message" then "message" else "signal" end),
				 env: (.env // {} | if type == "object" then map_values(tostring) else {} end)}' "$file" ||
				printf 'kernelspec %s is not valid JSON and is left out\n' "$name" >&2
		done
	done | jq -s 'reduce .[] as $spec ([]; if any(.[]; .name == $spec.name) then . else . + [$spec] end)'
}

# user_defaults ROOT USER WORKDIR ENV: the defaults of a foreign image as JSON. USER is "", "name[:group]" or
# "uid[:gid]" as in an OCI config; ENV is a JSON object.
user_defaults() {
	local root=$1 wanted=${2%%:*} group='' workdir=$3 env=$4 passwd groups line
	[[ $2 != *:* ]] || group=${2#*:}
	passwd=$(inside_file "$root" etc/passwd 1048576) || passwd=/dev/null
	groups=$(inside_file "$root" etc/group 1048576) || groups=/dev/null
	if [[ -z $wanted ]]; then # nobody said: the usual account of a person, else root
		wanted=$(awk -F: '$3 == "1000" { print $3; exit }' "$passwd")
		wanted=${wanted:-0}
	fi
	line=$(awk -F: -v want="$wanted" '$1 == want || $3 == want { print; exit }' "$passwd")
	if [[ -z $line ]]; then
		[[ $wanted =~ ^[0-9]{1,5}$ ]] || fail unknown_user \
			"the image is to run as '$wanted', who is not in its /etc/passwd; add the user or import it without that setting"
		line=$([[ $wanted == 0 ]] && echo 'root:x:0:0::/:' || echo "$wanted:x:$wanted:0::/:")
	fi
	if [[ -n $group && ! $group =~ ^[0-9]+$ ]]; then
		group=$(awk -F: -v want="$group" '$1 == want { print $3; exit }' "$groups")
	fi
	jq -Rc --arg group "$group" --arg workdir "$workdir" --argjson env "$env" '
		split(":") | {user: .[0], uid: (.[2] | tonumber), gid: (if $group == "" then .[3] else $group end | tonumber),
		home: (if .[5] // "" | startswith("/") then .[5] else "/" end)} |
		. + {workdir: (if $workdir == "" then .home else $workdir end), env: $env}' <<<"$line" ||
		fail bad_passwd "the line of '$wanted' in the image's /etc/passwd is damaged; correct it"
}

# describe_image OUTDIR VERIFY: prints image.json as one line; with VERIFY, after hashing the tree again.
describe_image() {
	local dir=$1 verify=$2 want have
	[[ -d $dir/rootfs && -f $dir/image.json ]] ||
		fail no_image "$1 is no image (it lacks rootfs/ or image.json); build or import one there"
	jq -e --argjson version "$IMAGE_VERSION" '.version == $version' "$dir/image.json" >/dev/null ||
		fail bad_image "$1/image.json is damaged or of another version than $IMAGE_VERSION; build or import the image anew"
	if [[ -n $verify ]]; then
		want=$(jq -r .digest "$dir/image.json")
		have=$(rootfs_digest "$dir/rootfs")
		[[ $want == "$have" ]] ||
			fail digest_mismatch "$1 was changed after it was made (recorded $want, found $have); build or import it anew"
	fi
	jq -c . "$dir/image.json" >&3
}
