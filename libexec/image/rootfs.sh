# shellcheck shell=bash
# Root file systems at rest: looking into one that a stranger made, tidying it, and its digest.

# inside ROOT PATH: prints where PATH leads when ROOT is the root directory, links in the tree followed as a process
# chrooted there would follow them. Fails when nothing is there. The tree must be at rest.
inside() {
	local root=$1 left=$2 done='' name target links=0
	while [[ -n $left ]]; do
		name=${left%%/*}
		[[ $left == */* ]] && left=${left#*/} || left=
		case $name in
		'' | .) continue ;;
		..) done=${done%/*} && continue ;;
		esac
		if [[ -L $root$done/$name ]]; then
			((++links <= 40)) || return 1
			target=$(readlink -- "$root$done/$name")
			[[ $target != /* ]] || done=
			left=$target/$left
		elif [[ -e $root$done/$name ]]; then
			done+=/$name
		else
			return 1
		fi
	done
	printf '%s\n' "$root$done"
}

# inside_file ROOT PATH MAX_BYTES: the same, for a regular file that is not larger than said.
inside_file() {
	local path
	path=$(inside "$1" "$2") || return 1
	[[ -f $path ]] && (($(stat -c %s -- "$path") <= $3)) || return 1
	printf '%s\n' "$path"
}

# What holds for every image: no device nodes, sockets or FIFOs; owners the sandbox can map; a root directory and mount
# points that are there; no extended attributes are our extractors' business.
rootfs_tidy() {
	local root=$1 dropped dir stranger
	chown 0:0 -- "$root"
	chmod 0755 -- "$root"
	dropped=$(find "$root" -xdev \( -type b -o -type c -o -type s -o -type p \) -delete -printf x | wc -c)
	((dropped == 0)) || emit tidy "dropped $dropped device nodes, sockets and FIFOs" null
	for dir in dev proc sys run tmp; do
		if [[ ! -e $root/$dir && ! -L $root/$dir ]]; then
			mkdir -m 0755 -- "$root/$dir"
			[[ $dir != tmp ]] || chmod 1777 -- "$root/$dir"
		fi
	done
	stranger=$(find "$root" -xdev \( -uid +65535 -o -gid +65535 \) -printf '/%P (%U:%G)\n' -quit)
	[[ -z $stranger ]] || fail owner_range "$stranger has an owner beyond 65535, which no sandbox can map; change the \
owners in the source (a tree unpacked by a rootless tool has shifted ids)"
}

# The canonical digest: one record for each entry (path, type, mode, uid, gid; size of a file, target of a link),
# sorted, then the SHA-256 of each file in the same order. A path has no empty component, so // ends it.
rootfs_digest() {
	(
		cd -- "$1"
		{
			find . -xdev -mindepth 1 \( \
				-type f -printf '%P//f %m %U %G %s\0' -o \
				-type l -printf '%P//l %m %U %G %l\0' -o \
				-printf '%P//%y %m %U %G\0' \) | LC_ALL=C sort -z
			printf '\0'
			find . -xdev -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum -z --
		} | sha256sum | sed 's/^/sha256:/; s/ .*//'
	)
}

# Prints "BYTES FILES": what the regular files hold (each hard-linked one counted once), and how many entries there
# are that are not directories.
rootfs_measure() {
	find "$1" -xdev -mindepth 1 ! -type d -printf '%y %i %s\n' |
		awk '{ files++ } $1 == "f" && !seen[$2]++ { bytes += $3 } END { printf "%.0f %d\n", bytes, files }'
}
