# shellcheck shell=bash
# `import`: somebody else's root file system, as a directory, a tar or an OCI layout.
#
# An archive is hostile until proven otherwise. Its names are looked at before anything is unpacked; bsdtar then
# unpacks it with the new root as its own root directory (--chroot), so that neither names nor links reach out of
# it whatever they say; and without the capability to make device nodes.

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
	tar) import_tar "$path" "$root" ;;
	oci | oci-archive) import_oci "$kind:$path${tag:+:$tag}" "$dir" ;; # sets user, workdir, env
	esac
	[[ -d $root/usr || -L $root/usr || -d $root/bin || -L $root/bin ]] || fail not_a_rootfs \
		"there is neither /usr nor /bin in $path; import a whole root file system, with those at its top"
	rootfs_tidy "$root"
	local defaults
	defaults=$(user_defaults "$root" "$user" "$workdir" "$env")
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

import_tar() {
	local file=$1 root=$2 bad
	emit check "looking at the names in the archive" 0
	bad=$(tar_names "$file" | unsafe_name)
	[[ -z $bad ]] || fail unsafe_archive "the archive has the member '${bad:0:200}', which is absolute or climbs with ..; \
make it anew with: tar -C ROOT -c ."

	local pid status=0
	emit extract "unpacking" 5
	# Without CAP_MKNOD: device nodes are left out below, not made. Members are unpacked relative to the new root.
	setpriv --bounding-set "$TAR_CAPS" --inh-caps "-all" \
		bsdtar -x -p --numeric-owner --no-xattrs --no-acls --no-fflags --chroot -C "$root" -f - <"$file" 2>"$TMPDIR/tar.log" &
	pid=$!
	tar_progress "$pid" "$(stat -c %s -- "$file")" || true
	wait "$pid" || status=$?
	cat -- "$TMPDIR/tar.log"
	mapfile -t said <"$TMPDIR/tar.log"
	((status == 0)) || explain_tar "$root"
}
