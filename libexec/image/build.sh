# shellcheck shell=bash
# `build`: a Debian root from a recipe, with mmdebstrap.

KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# work_build DIR RECIPE MIRROR SECURITY SUITE INCLUDE BASE BASE_ONLY
work_build() {
	local dir=$1 recipe=$2 mirror=$3 security=$4 suite=$5 include=$6 base=$7 base_only=$8
	local root=$dir/rootfs
	# The recipe as it is now: a file saved in the middle of a build must not split the image from its recipe id.
	mkdir -- "$dir/tmp/recipe"
	cp -rL -- "$recipe/." "$dir/tmp/recipe/"
	recipe=$dir/tmp/recipe
	suite=${suite:-$(recipe_get "$recipe" .suite)}

	# What was built with options of its own is not what the recipe's ids stand for.
	local ids
	ids=$(jq -nc --arg id "$(recipe_id "$recipe" '')" --arg base_id "$(recipe_id "$recipe" base)" \
		--arg base_only "$base_only" --arg extra "$include" --arg suite "$suite" --slurpfile recipe "$recipe/recipe.json" '
		if $extra != "" or $suite != $recipe[0].suite then {id: null, base_id: null}
		else {id: (if $base_only == "" then $id else null end), base_id: $base_id} end')

	if [[ -n $base ]]; then
		build_from_base "$base" "$root"
	else
		build_base "$recipe" "$root" "$mirror" "$security" "$suite" "$include"
	fi
	[[ -n $base_only ]] || build_late "$recipe" "$root"
	rootfs_tidy "$root"

	describe_write "$dir" "$(recipe_get "$recipe" .name)" recipe \
		"$(jq -c '.defaults | {user, uid, gid, home, workdir, env: (.env // {})}' "$recipe/recipe.json")" "$ids"
}

# --- the base -------------------------------------------------------------------------------------------------------

build_base() {
	local recipe=$1 root=$2 mirror=$3 security=$4 suite=$5 include=$6
	local -a options=(--mode=root --variant=minbase --format=directory --verbose --skip=output/dev)
	local -a sources
	local packages word

	choose_mirrors "$mirror" "$security" "$suite" # sets sources
	packages=$(recipe_get "$recipe" '.packages | join(",")')${include:+,$include}
	packages=${packages#,}
	options+=('--aptopt=APT::Install-Recommends "false"' ${packages:+"--include=$packages"})
	recipe_get "$recipe" '(.path_exclude // [])[] | "path-exclude=" + .' | while IFS= read -r word; do
		options+=("--dpkgopt=$word")
	done
	recipe_get "$recipe" '(.path_include // [])[] | "path-include=" + .' | while IFS= read -r word; do
		options+=("--dpkgopt=$word")
	done
	apt_proxies | while IFS= read -r word; do
		options+=("--aptopt=$word")
	done
	# Hooks get the root as $1. They run while mmdebstrap has /proc, /dev and the network set up. The recipe's place
	# reaches them through the environment: a path inside the script would have to be quoted for another shell.
	export COPPICE_RECIPE=$recipe
	[[ ! -d $recipe/files ]] || options+=("--customize-hook=$FILES_HOOK")
	if [[ -f $recipe/setup.sh ]]; then
		chmod 0755 -- "$recipe/setup.sh"
		options+=("--customize-hook=$SETUP_HOOK")
	fi

	emit download "asking for package lists" null
	watch read_mmdebstrap mmdebstrap "${options[@]}" "$suite" "$root" "${sources[@]}" || explain_mmdebstrap "$root"
	emit tidy "removing what only the build needed" null
	build_tidy "$recipe" "$root" "$suite"
}

# shellcheck disable=SC2016 # another shell expands these
{
	# Owner root and plain modes, whatever the umask was when the repository was cloned.
	FILES_HOOK='tar -C "$COPPICE_RECIPE/files" --owner=0 --group=0 --numeric-owner --mode="u=rwX,go=rX" -cf - . |
		tar -C "$1" --no-overwrite-dir --keep-directory-symlink -xpf -'
	SETUP_HOOK='echo "I: running setup.sh"; cp "$COPPICE_RECIPE/setup.sh" "$1/tmp/setup.sh" &&
		env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
			chroot "$1" /tmp/setup.sh && rm "$1/tmp/setup.sh"'
}

# Sets `sources` to lines for sources.list: the archive, its updates, and the security archive where one is known.
choose_mirrors() {
	local mirror=$1 security=$2 suite=$3
	[[ -n $mirror ]] || mirror=$(host_mirror Debian)
	[[ -n $mirror ]] || fail no_mirror "this host has no Debian mirror configured; name one with --mirror URL"
	[[ -n $security ]] || security=$(host_mirror Debian-Security)
	security=${security:-none}
	sources=("deb ${mirror%/} $suite main")
	[[ -f $KEYRING ]] || fail tool_missing \
		"the keys of the Debian archive are missing; install them with: apt-get install debian-archive-keyring"
	case $suite in
	sid | unstable | testing) return ;; # have neither
	esac
	sources+=("deb ${mirror%/} $suite-updates main")
	[[ $security == none ]] || sources+=("deb ${security%/} $suite-security main")
}

# Where this machine gets Debian from, when it is a Debian. $1: the label of the archive.
host_mirror() {
	command -v apt-get >/dev/null || return 0
	# shellcheck disable=SC2016 # apt's own format language
	apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
		awk -v label="$1" '$1 == label && $2 ~ /^(https?|file|copy):/ && !uri { uri = $2 } END { print uri }' || true
}

# The host's proxy settings as apt options.
apt_proxies() {
	command -v apt-config >/dev/null || return 0
	apt-config dump 2>/dev/null | grep -E '^Acquire::(http|https)::Proxy(::[^ ]+)? "[^"]+";$' || true
}

# After mmdebstrap: no trace of this machine (its name, resolver, proxy), nothing that can be had again. The image's own apt asks the
# archives that it was built from.
build_tidy() {
	local root=$2 suite=$3
	find "$root/dev" "$root/run" "$root/tmp" -xdev -mindepth 1 -delete
	rm -rf -- "$root"/var/lib/apt/lists/* "$root/var/cache/apt/archives/lock" "$root"/var/cache/apt/*.bin "$root"/var/cache/debconf/*-old \
		"$root"/var/lib/dpkg/*-old "$root"/var/log/{apt,dpkg.log,alternatives.log,bootstrap.log} \
		"$root/etc/apt/sources.list" "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root"/etc/{passwd,group,shadow,gshadow}-
	mkdir -p -- "$root/var/lib/apt/lists/partial"
	put "$root/etc/hostname" 'sandbox'
	put "$root/etc/hosts" '127.0.0.1 localhost' '::1 localhost ip6-localhost ip6-loopback'
	put "$root/etc/resolv.conf" '# A sandbox has only the loopback interface unless its network policy opens more.'
	put "$root/etc/machine-id"
	put "$root/etc/apt/apt.conf.d/90coppice" 'APT::Install-Recommends "false";'
	printf '%s\n' "${sources[@]}" | sed "s|^deb |deb [signed-by=$KEYRING] |" >"$root/etc/apt/sources.list"
	chmod 0644 -- "$root/etc/apt/sources.list"
}

# put FILE LINE...: a fresh file of owner root, also where a link stood.
put() {
	local file=$1
	shift
	rm -f -- "$file"
	(($# == 0)) || printf '%s\n' "$@" >"$file"
	(($# > 0)) || : >"$file"
	chmod 0644 -- "$file"
}

# --- the late folders -----------------------------------------------------------------------------------------------

# The base's files as hard links where that is possible: nothing in a finished image is ever written in place.
build_from_base() {
	emit install "starting from the base $1" 10
	cp -al -- "$1/rootfs" "$2" 2>/dev/null || {
		rm -rf -- "$2"
		watch read_nothing cp -a -- "$1/rootfs" "$2" || {
			fail_if_disk_full "${2%/*}"
			fail io_error "the base $1 could not be copied: $(said_line .)"
		}
	}
}

build_late() {
	local recipe=$1 root=$2 folder place
	recipe_get "$recipe" '.late // {} | to_entries[] | "\(.key) \(.value)"' | while read -r folder place; do
		[[ -d $recipe/$folder ]] || continue
		emit configure "adding $folder" 94
		rm -rf -- "${root:?}$place"
		mkdir -p -- "$root$place"
		tar -C "$recipe/$folder" --exclude=__pycache__ --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' -cf - . |
			tar -C "$root$place" -xpf -
		chroot "$root" /usr/bin/python3 -m compileall -q "$place" </dev/null || fail bad_recipe \
			"the Python files of $folder do not compile in the image; the compiler's words are on stderr"
	done
}

# --- progress and failures of mmdebstrap ----------------------------------------------------------------------------

total=0 count=0 shown=-1 # packages of this phase, those done, the percentage last shown
download_from=0 install_from=3 setup_from=15

# Reads what apt and dpkg say. mmdebstrap works in two phases: the essential packages (to 15 %), then the rest (to 90 %).
read_mmdebstrap() {
	local words
	case $1 in
	'I: installing remaining packages'*) total=0 download_from=15 install_from=45 setup_from=90 ;;
	'I: running setup.sh') emit configure "running the recipe's setup.sh" 91 ;;
	*' newly installed, '*) if [[ $1 =~ ([0-9]+)' newly installed' ]]; then total=${BASH_REMATCH[1]} count=0; fi ;;
	'Get:'*)
		read -ra words <<<"$1"
		step download "${words[4]:-}" $download_from $((install_from - download_from)) "$total"
		((count < total)) || count=0
		;;
	'Unpacking '* | 'Setting up '*)
		read -ra words <<<"${1#Setting up }"
		[[ ${words[0]} != Unpacking ]] || words=("${words[@]:1}")
		step install "${words[0]}" $install_from $((setup_from - install_from)) $((2 * total))
		;;
	esac
}

# step STAGE WORD FROM WIDTH STEPS: one more of STEPS is done. Speaks when the whole percentage has grown.
step() {
	local percent
	(($5 > 0)) || return 0
	percent=$(($3 + $4 * ++count / $5))
	((percent > shown && percent <= $3 + $4)) || return 0
	shown=$percent
	emit "$1" "$2" "$percent"
}

# mmdebstrap failed: say which of the usual causes it was.
explain_mmdebstrap() {
	local line
	fail_if_disk_full "${1%/*}"
	line=$(said_line 'Unable to locate package|has no installation candidate')
	[[ -z $line ]] || fail package_missing "the archive lacks a package of the recipe ($line); correct recipe.json or --include"
	line=$(said_line 'NO_PUBKEY|not signed|signatures were invalid|EXPKEYSIG|is not valid yet|Verification failed')
	[[ -z $line ]] || fail mirror_untrusted "the mirror's signature cannot be trusted ($line); check the clock and the \
package debian-archive-keyring"
	line=$(said_line 'Could not resolve|Could not connect|Unable to connect|Failed to fetch|Connection (failed|timed out)|\
does not have a Release file|Temporary failure|File not found')
	[[ -z $line ]] || fail mirror_unreachable "the packages cannot be fetched ($line); check the network, or name a mirror \
with --mirror URL and --security-mirror URL"
	line=$(said_line 'Operation not permitted|unshare|mount: ')
	[[ -z $line ]] || fail not_permitted "this machine does not let root make mounts ($line); run it where mounting works"
	line=$(said_line '^E: ')
	fail build_failed "mmdebstrap failed (${line:-no reason given}); its whole output is on stderr"
}
