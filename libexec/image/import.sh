# shellcheck shell=bash
# `import`: somebody else's root file system, as a directory, a tar or an OCI layout.
#
# An archive is hostile until proven otherwise. Its names are looked at before anything is unpacked. bsdtar then
# unpacks it with OUTDIR.partial as its own root directory (--chroot), so that neither names nor links lead out,
# whatever they say. The members go into rootfs/ below that and not to the top: what the C library may want to load
# in the middle (/usr/lib/.../gconv) must not come from the archive. OCI layers are unpacked by umoci, which resolves
# every path beneath the root, without a network.

# import_check SOURCE OUTDIR NAME: sets import_kind (dir, tar, oci), import_path, import_tag, import_name.
import_check() {
	local source=$1 out=$2 name=$3
	import_tag=
	case $source in
	oci:* | oci-archive:*) import_check_oci "$source" ;;
	*)
		[[ -e $source ]] || fail no_source "there is no $source; name a directory, a root file system as tar, or oci:LAYOUT"
		import_path=$(realpath -e -- "$source")
		if [[ -d $import_path ]]; then
			import_kind=dir
			[[ $out/ != "$import_path"/* ]] || fail usage "OUTDIR $out lies in the directory to import; choose another"
			[[ ! -f $import_path/image.json || ! -d $import_path/rootfs ]] || import_kind=image
			[[ ! -f $import_path/oci-layout ]] || fail usage "$source is an OCI layout; import it as oci:$source"
		elif [[ -f $import_path ]]; then
			import_kind=tar
			need_tool bsdtar libarchive-tools
		else
			fail no_source "$source is neither a directory nor a file"
		fi
		;;
	esac
	if [[ -z $name ]]; then
		name=${import_path##*/}
		name=$(sed -E 's/\.(tar|tgz|tzst|txz|tar\.[a-z0-9]+)$//; s/[^A-Za-z0-9._-]+/-/g; s/^[^A-Za-z0-9]+//' <<<"$name")
	fi
	name=${name:0:63}
	import_name=${name:-image}
}

import_check_oci() {
	local rest=${1#*:}
	import_kind=${1%%:*}
	need_tool skopeo skopeo
	need_tool getfattr attr
	need_tool umoci umoci
	if [[ ! -e $rest && $rest == *:* ]]; then
		import_tag=${rest##*:}
		rest=${rest%:*}
	fi
	[[ -e $rest ]] || fail no_source "there is no $rest; write oci:LAYOUT or oci:LAYOUT:TAG"
	[[ $import_kind == oci-archive || -f $rest/oci-layout ]] ||
		fail no_source "$rest has no file oci-layout, so it is no OCI layout; import a plain directory without oci:"
	# skopeo splits its argument at colons.
	import_path=$(realpath -e -- "$rest")
	[[ $import_path != *:* ]] || fail no_source "the path $import_path holds a colon, which skopeo cannot take; rename it"
}

# work_import DIR KIND PATH TAG NAME
work_import() {
	local dir=$1 kind=$2 path=$3 tag=$4 name=$5
	local root=$dir/rootfs user='' workdir='' env='{}'
	mkdir -m 0755 -- "$root"
	case $kind in
	dir) import_dir "$path" "$root" ;;
	image) # one that Coppice made: its defaults come along, everything else is read anew
		jq -e '.defaults | type == "object"' "$path/image.json" >/dev/null ||
			fail bad_image "$path/image.json is damaged; import $path/rootfs as a plain directory"
		import_dir "$path/rootfs" "$root"
		;;
	tar) import_tar "$path" "$root" ;;
	oci | oci-archive) import_oci "$kind:$path${tag:+:$tag}" "$dir" ;; # sets user, workdir, env
	esac
	[[ -d $root/usr || -L $root/usr || -d $root/bin || -L $root/bin ]] || fail not_a_rootfs \
		"there is neither /usr nor /bin in $path; import a whole root file system, with those at its top"
	rootfs_tidy "$root"
	local defaults
	if [[ $kind == image ]]; then
		defaults=$(jq -c '.defaults | del(.coppice_kernel)' "$path/image.json")
	else
		defaults=$(user_defaults "$root" "$user" "$workdir" "$env")
	fi
	describe_write "$dir" "$name" "${kind%%-*}" "$defaults" null
}

import_dir() {
	emit extract "copying $1" null
	# One file system: /proc and /sys of a live tree stay out. No extended attributes: those of overlayfs mean things.
	watch read_nothing cp -a --one-file-system --no-preserve=xattr --reflink=auto -- "$1/." "$2" || {
		fail_if_disk_full "${2%/*}"
		fail copy_failed "the directory $1 could not be copied: $(said_line .)"
	}
}

# --- tar ------------------------------------------------------------------------------------------------------------

# What bsdtar needs to set owners and modes; mknod only so that an archive with device nodes unpacks at all.
TAR_CAPS=-all,+chown,+dac_override,+fowner,+fsetid,+mknod,+sys_chroot

import_tar() {
	local file=$1 root=$2 size pid status=0
	size=$(stat -c %s -- "$file")
	tar_check "$file"

	emit extract "unpacking" 10
	setpriv --bounding-set "$TAR_CAPS" --inh-caps -all bsdtar -x -p --numeric-owner --no-xattrs --no-acls --no-fflags \
		--chroot -C "${root%/*}" -s ',^\(\./\)*,rootfs/,S' -f - <"$file" &>"$TMPDIR/tar.log" &
	pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		read_position "$pid" "$size" 10 85
		sleep 0.3
	done
	wait "$pid" || status=$?
	tail -n 200 -- "$TMPDIR/tar.log"
	mapfile -t said < <(tail -n 40 -- "$TMPDIR/tar.log")
	((status == 0)) || explain_tar "$root"
}

# Is it a tar (libarchive would also take formats that name other files of this machine) and are its names harmless?
tar_check() {
	local file=$1 bad
	emit check "looking at the names in the archive" 0
	[[ $(tar_magic "$file") == ustar ]] ||
		fail bad_archive "$file is not a tar archive, plain or compressed with gzip, zstd, xz or bzip2"
	bad=$(bsdtar -tf - <"$file" | awk '!found && (/^\// || /(^|\/)\.\.(\/|$)/) { found = 1; print substr($0, 1, 200) }') ||
		fail bad_archive "$file is damaged or cut short; bsdtar's words are on stderr"
	[[ -z $bad ]] || fail unsafe_archive "the archive's member '$bad' is absolute or climbs with '..'; \
make the archive anew with: tar -C ROOT -c ."
}

# The format's mark in the first block, after decompression.
tar_magic() {
	local unpack=cat
	case $(od -An -tx1 -N6 -- "$1" | tr -d ' \n') in
	1f8b*) unpack='gzip -dc' ;;
	28b52ffd*) unpack='zstd -dcq' && need_tool zstd zstd ;;
	fd377a585a00) unpack='xz -dc' && need_tool xz xz-utils ;;
	425a68*) unpack='bzip2 -dc' && need_tool bzip2 bzip2 ;;
	esac
	# The tools end by SIGPIPE or complain of a cut archive: only the bytes count here.
	{ $unpack <"$1" 2>/dev/null || true; } | head -c 512 | tail -c +258 | head -c 5 | tr -cd '[:alnum:]' || true
}

# How far process PID has read its standard input, as a percentage from FROM to TO.
read_position() {
	local pos percent
	pos=$(awk '$1 == "pos:" { print $2 }' "/proc/$1/fdinfo/0" 2>/dev/null) || return 0
	percent=$(($3 + ($4 - $3) * ${pos:-0} / ($2 + 1)))
	if ((percent > shown)); then
		shown=$percent
		emit extract "unpacking" "$percent"
	fi
}

explain_tar() {
	local line
	fail_if_disk_full "$1"
	line=$(said_line "through symlink|Path contains '\.\.'|[Hh]ard-?link|Invalid empty pathname")
	[[ -z $line ]] || fail unsafe_archive "a member of the archive leads out of it ($line); make the archive anew"
	line=$(said_line 'runcated|amaged|corrupt|Unrecognized|decompression failed')
	[[ -z $line ]] || fail bad_archive "the archive is damaged or cut short ($line); fetch it again"
	fail copy_failed "the archive could not be unpacked ($(said_line ':')); bsdtar's words are on stderr"
}

# --- OCI ------------------------------------------------------------------------------------------------------------

# import_oci REFERENCE DIR: unpacks to DIR/rootfs; sets `user`, `workdir` and `env` of the caller.
import_oci() {
	local reference=$1 dir=$2 layout=$2/tmp/oci bundle=$2/tmp/bundle
	emit extract "reading the layers" 5
	# The copy checks every blob's digest, picks this machine's architecture and gives the image a name.
	watch read_nothing unshare --net skopeo --insecure-policy copy --quiet "$reference" "oci:$layout:image" ||
		explain_oci "$dir" "$reference"
	emit extract "unpacking the layers" 40
	watch read_nothing unshare --net umoci unpack --image "$layout:image" "$bundle" || explain_oci "$dir" "$reference"
	oci_place "$bundle/rootfs" "$dir/rootfs"

	local manifest config
	manifest=$(oci_blob "$layout" "$(jq -r '.manifests[0].digest' "$layout/index.json")")
	config=$(oci_blob "$layout" "$(jq -r .config.digest "$manifest")")
	user=$(jq -r '.config.User // ""' "$config")
	workdir=$(jq -r '.config.WorkingDir // ""' "$config")
	env=$(jq -c '[.config.Env // [] | .[] | capture("^(?<key>[^=]+)=(?<value>(.|\n)*)$")] | from_entries' "$config")
}

# Moves the unpacked tree into place. Layers may carry extended attributes that overlayfs would obey (user.overlay.*):
# then it is copied instead, which leaves them behind.
oci_place() {
	local found
	found=$(getfattr -RPhd -m '^(user|trusted)\.' -- "$1" 2>/dev/null | head -c 1 | tr '\0' x) || true
	rmdir -- "$2"
	if [[ -z $found ]]; then
		mv -- "$1" "$2"
	else
		mkdir -m 0755 -- "$2"
		import_dir "$1" "$2"
	fi
}

oci_blob() {
	[[ $2 =~ ^sha256:[0-9a-f]{64}$ ]] || fail bad_archive "the OCI layout names a blob '${2:0:80}'; make it anew"
	printf '%s/blobs/sha256/%s\n' "$1" "${2#sha256:}"
}

explain_oci() {
	local line
	fail_if_disk_full "$1/rootfs"
	line=$(said_line 'no descriptor found|more than one image|no image found|choose an image|reference')
	[[ -z $line ]] || fail no_source "$2 does not name one image ($line); add a tag: oci:LAYOUT:TAG"
	line=$(said_line 'level=fatal|⨯|rror')
	fail bad_archive "$2 could not be unpacked (${line:-no reason given}); make or fetch the layout again"
}
