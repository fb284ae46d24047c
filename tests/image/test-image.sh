#!/bin/bash
# Tests of libexec/coppice-image, in TAP. Run as root: tests/image/test-image.sh [NAME-PATTERN]
#
# Slow or failing tools are played by small scripts put first in PATH, so that "in the middle of the build" is a
# state that a test waits for and not a matter of timing. MUST_WORK=1 turns skips into failures.

set -uo pipefail
shopt -s nullglob

here=$(dirname "$(readlink -f "$0")")
repo=$(readlink -f "$here/../..")
tool=$repo/libexec/coppice-image
tmp=$(mktemp -d /var/tmp/coppice-image-test.XXXXXX)
passed=0 failed=0 skipped=0 number=0
trap 'umount -q "$tmp/small" 2>/dev/null; rm -rf --one-file-system -- "$tmp"' EXIT

# --- harness --------------------------------------------------------------------------------------------------------

problems=() skip_reason=

problem() { problems+=("$*"); }
skip() { skip_reason=$*; }

# Inside a test: is EXPRESSION (a command) true?
check() { "$@" || problem "not true: $*"; }
equal() { [[ $1 == "$2" ]] || problem "got '$1', wanted '$2'${3:+ ($3)}"; }

# run ARG...: runs the tool; sets status, out (its lines), last (the last line) and err (a file).
run() {
	err=$tmp/stderr
	out=$("$tool" "$@" 2>"$err" </dev/null)
	status=$?
	last=${out##*$'\n'}
}

# run_error CODE ARG...: a run that must fail with one well formed error line of that code.
run_error() {
	local code=$1
	shift
	run "$@"
	equal "$status" 1 "exit status"
	equal "$(jq -r 'select(.stage == "error") | .code' <<<"$out" | tr '\n' ' ')" "$code " "$last"
	((${#last} > 40)) || problem "the message is too short to help: $last"
}

run_ok() {
	run "$@"
	equal "$status" 0 "$last$(tail -n 3 "$err")"
}

# Nothing of OUTDIR may be there.
nothing_left() {
	[[ ! -e $1 && ! -e $1.partial ]] || problem "left behind: $(ls -d "$1"*)"
}

test_case() {
	local name=$1
	[[ -z ${pattern:-} || $name == *$pattern* ]] || return 0
	problems=() skip_reason=
	((++number))
	"test_$name"
	if ((${#problems[@]})); then
		((++failed))
		echo "not ok $number - $name"
		printf '#   %s\n' "${problems[@]}"
	elif [[ -n $skip_reason ]]; then
		if [[ ${MUST_WORK:-} == 1 ]]; then
			((++failed))
			echo "not ok $number - $name: skipped although MUST_WORK=1: $skip_reason"
		else
			((++skipped))
			echo "ok $number - $name # SKIP $skip_reason"
		fi
	else
		((++passed))
		echo "ok $number - $name"
	fi
	rm -rf --one-file-system -- "$tmp"/out*
}

# --- what the tests import ------------------------------------------------------------------------------------------

# A small root with one of everything that a tar can carry.
make_root() {
	local root=$1 kernels=$1/usr/share/jupyter/kernels
	mkdir -p "$root"/{usr/bin,etc,home/user,tmp,dev,proc,sys,run,var/lib/dpkg} "$kernels"/{python3,Bad,r}
	chmod 1777 "$root/tmp"
	ln -s usr/bin "$root/bin"
	echo '#!/bin/sh' >"$root/usr/bin/sh"
	cp "$root/usr/bin/sh" "$root/usr/bin/sudo"
	chmod 4755 "$root/usr/bin/sudo"
	ln "$root/usr/bin/sh" "$root/usr/bin/dash"
	ln -s /etc/passwd "$root/etc/absolute-link"
	ln -s nowhere "$root/etc/dangling"
	printf 'x' >"$root/etc/"$'odd\nname \\ "quoted" é'
	printf 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\nweb:x:33:34::/var/www:/bin/false\n' >"$root/etc/passwd"
	printf 'root:x:0:\nstaff:x:50:\nuser:x:1000:\n' >"$root/etc/group"
	printf 'PRETTY_NAME="Debian"\nID=debian\nVERSION_ID="13"\n' >"$root/usr/os-release"
	ln -s /usr/os-release "$root/etc/os-release"
	printf 'Package: tiny\nStatus: install ok installed\nVersion: 1:2.0\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 3\n\n' >"$root/var/lib/dpkg/status"
	echo '{"argv":["python3","-m","k","{connection_file}"],"display_name":"Python","language":"python"}' >"$kernels/python3/kernel.json"
	echo '{"argv":["R"],"display_name":"R","language":"R","interrupt_mode":"message","env":{"A":"b"}}' >"$kernels/r/kernel.json"
	echo '{"argv":' >"$kernels/Bad/kernel.json"
	chown -R 1000:1000 "$root/home/user"
	chown 65535:65534 "$root/etc/dangling" -h
}

# member NAME [LINK]: appends a member with any name at all to the tar "$archive" (Python's tarfile checks nothing).
member() {
	python3 - "$archive" "$@" <<-'END'
		import io, os, sys, tarfile
		path, kind, name, *rest = sys.argv[1:]
		with tarfile.open(path, "a" if os.path.exists(path) else "w") as tar:
		    info = tarfile.TarInfo(name)
		    info.mode = 0o755
		    data = b""
		    if kind == "file":
		        data = (rest or ["pwned"])[0].encode()
		        info.size = len(data)
		    elif kind == "dir":
		        info.type = tarfile.DIRTYPE
		    else:
		        info.type = {"link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "char": tarfile.CHRTYPE,
		                     "block": tarfile.BLKTYPE, "fifo": tarfile.FIFOTYPE}[kind]
		        info.linkname = (rest or [""])[0]
		        info.devmajor, info.devminor = 1, 3
		    tar.addfile(info, io.BytesIO(data))
	END
}

new_archive() {
	archive=$tmp/$1.tar
	rm -f "$archive"
	member dir usr
	member file usr/sh
}

# make_layout DIR TAG: an OCI layout of two layers on the small root, with a config.
make_layout() {
	umoci --log=error init --layout "$1" && umoci --log=error new --image "$1:$2" || return
	umoci --log=error unpack --image "$1:$2" "$tmp/bundle" && cp -a "$root/." "$tmp/bundle/rootfs/" &&
		echo old >"$tmp/bundle/rootfs/etc/removed" && mknod "$tmp/bundle/rootfs/dev/null" c 1 3 &&
		umoci --log=error repack --image "$1:$2" "$tmp/bundle" && rm -rf "$tmp/bundle" || return
	umoci --log=error unpack --image "$1:$2" "$tmp/bundle" && rm "$tmp/bundle/rootfs/etc/removed" &&
		umoci --log=error repack --image "$1:$2" "$tmp/bundle" && rm -rf "$tmp/bundle" || return
	umoci --log=error config --image "$1:$2" --config.user web:staff --config.workingdir /srv \
		--config.env 'A=b=c' --config.env 'EMPTY='
}

# play NAME: puts a script from stdin in front of the tool NAME. Undone by `unplay`.
play() {
	mkdir -p "$tmp/play"
	cat >"$tmp/play/$1"
	chmod 0755 "$tmp/play/$1"
	PATH=$tmp/play:$plain_path
}

unplay() {
	PATH=$plain_path
	rm -rf "$tmp/play"
}
plain_path=$PATH

# play_slow NAME OUTDIR: the tool NAME, which tells when it is in the middle of its work and then waits, to fail once
# the file "go on" is there.
play_slow() {
	rm -f "$tmp/started" "$tmp/go on"
	play "$1" <<-END
		#!/bin/bash
		# what a build leaves lying around: a file, a mount, a daemon with a session of its own
		mkdir -p '$2.partial/rootfs/mnt' && mount -t tmpfs t '$2.partial/rootfs/mnt'
		setsid sleep 98765.$$ &
		echo half >'$2.partial/rootfs/half'
		: >'$tmp/started'
		until test -e '$tmp/go on'; do sleep 0.05; done
		exit 1
	END
}

wait_for() {
	local i
	for ((i = 0; i < 600; i++)); do
		"$@" && return
		sleep 0.05
	done
	problem "waited in vain for: $*"
	return 1
}

no_sleepers() { ! pgrep -f "^sleep 98765.$$\$" >/dev/null; }

# --- import ---------------------------------------------------------------------------------------------------------

test_import_directory() {
	run_ok import "$root" "$tmp/out"
	equal "$(jq -r .stage <<<"$last")" "done"
	equal "$(jq -es 'all(.[]; (.stage | type) == "string" and (.message | type) == "string" and has("percent"))' <<<"$out")" true
	equal "$(stat -c %a:%u "$tmp/out")" 700:0 "others must not reach set-uid programs in it"
	equal "$(find "$tmp/out" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ' ')" 'image.json rootfs '
	equal "$(stat -c %a:%u:%g "$tmp/out/rootfs" "$tmp/out/rootfs/usr/bin/sudo" "$tmp/out/rootfs/home/user" | tr '\n' ' ')" \
		'755:0:0 4755:0:0 755:1000:1000 '
	equal "$(stat -c %u:%g "$tmp/out/rootfs/etc/dangling")" 65535:65534
	check test "$tmp/out/rootfs/usr/bin/sh" -ef "$tmp/out/rootfs/usr/bin/dash"
	check test -e "$tmp/out/rootfs/etc/"$'odd\nname \\ "quoted" é'
	[[ ! -e $tmp/out.partial ]] || problem "out.partial is left"
}

test_image_json() {
	run_ok import "$root" "$tmp/out" --name small
	local json=$tmp/out/image.json
	equal "$(jq -c '[.version, .name, .os, .packages, .source, .recipe]' "$json")" \
		'[1,"small",{"id":"debian","version":"13"},[{"name":"tiny","version":"1:2.0"}],"dir",null]'
	equal "$(jq -c .defaults "$json")" \
		'{"user":"user","uid":1000,"gid":1000,"home":"/home/user","workdir":"/home/user","env":{}}'
	equal "$(jq -c '[.kernelspecs[] | [.name, .argv[0], .language, .interrupt_mode, .env]]' "$json")" \
		'[["python3","python3","python","signal",{}],["r","R","R","message",{"A":"b"}]]' "the damaged one is left out"
	equal "$(jq -r '.created | test("^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$")' "$json")" true
	equal "$(jq -r '.digest | test("^sha256:[0-9a-f]{64}$")' "$json")" true
	equal "$(jq .files "$json")" "$(find "$root" ! -type d -printf x | wc -c)"
	equal "$(jq .size_bytes "$json")" "$(find "$root" -type f -printf '%i %s\n' | sort -u | awk '{ n += $2 } END { print n }')"
	run_ok describe "$tmp/out"
	equal "$(jq -c . <<<"$last")" "$(jq -c . "$json")"
}

test_same_tree_same_digest() {
	local kind wanted
	run_ok import "$root" "$tmp/out-dir"
	wanted=$(jq -r .digest "$tmp/out-dir/image.json")
	tar -C "$root" --numeric-owner -cf "$tmp/root.tar" .
	for kind in gz zst xz bz2; do
		tar -C "$root" --numeric-owner -caf "$tmp/root.tar.$kind" .
	done
	tar -C "$root" --numeric-owner --format=pax -cf "$tmp/root-pax.tar" usr etc home tmp dev proc sys run var bin # no ./
	for kind in root.tar root.tar.{gz,zst,xz,bz2} root-pax.tar; do
		run_ok import "$tmp/$kind" "$tmp/out-$kind"
		equal "$(jq -r .digest "$tmp/out-$kind/image.json")" "$wanted" "$kind"
	done
	equal "$(jq -r .name "$tmp/out-root.tar.zst/image.json")" root
	run_ok import "$tmp/out-dir/rootfs" "$tmp/out-again"
	equal "$(jq -r .digest "$tmp/out-again/image.json")" "$wanted" "imported again"
}

test_digest_sees_every_change() {
	local change seen=' '
	for change in 'true' 'echo y >usr/bin/sh' 'chmod 700 usr/bin/sh' 'chown 5 usr/bin/sh' 'chgrp 5 usr/bin/sh' \
		'ln -sfn other etc/dangling' 'mv usr/bin/sh usr/bin/sx' 'mkdir usr/empty' 'chmod 711 etc'; do
		rm -rf "$tmp/changed" "$tmp/out"
		cp -a "$root" "$tmp/changed"
		(cd "$tmp/changed" && eval "$change")
		run_ok import "$tmp/changed" "$tmp/out"
		[[ $seen != *" $(jq -r .digest "$tmp/out/image.json") "* ]] || problem "same digest after: $change"
		seen+="$(jq -r .digest "$tmp/out/image.json") "
	done
	rm -rf "$tmp/changed" "$tmp/out"
	cp -a "$root" "$tmp/changed"
	touch -d 2001-01-01 "$tmp/changed/usr/bin/sh"
	run_ok import "$tmp/changed" "$tmp/out"
	[[ $seen == " $(jq -r .digest "$tmp/out/image.json") "* ]] || problem "the time of a file changes the digest"
}

test_describe_verify() {
	run_ok import "$root" "$tmp/out"
	run_ok describe "$tmp/out" --verify
	echo more >>"$tmp/out/rootfs/usr/bin/sudo"
	run_ok describe "$tmp/out"
	run_error digest_mismatch describe "$tmp/out" --verify
	echo '{' >"$tmp/out/image.json"
	run_error bad_image describe "$tmp/out"
	echo '{"version":99}' >"$tmp/out/image.json"
	run_error bad_image describe "$tmp/out"
	run_error no_image describe "$root"
}

test_import_oci() {
	local layout=$tmp/layout
	rm -rf "$layout"
	make_layout "$layout" v1 &>"$tmp/umoci.log" || { skip "umoci cannot make a layout: $(tail -n 1 "$tmp/umoci.log")" && return; }
	run_ok import "$root" "$tmp/out-dir"
	run_ok import "oci:$layout:v1" "$tmp/out"
	equal "$(jq -r .digest "$tmp/out/image.json")" "$(jq -r .digest "$tmp/out-dir/image.json")"
	equal "$(jq -c .defaults "$tmp/out/image.json")" \
		'{"user":"web","uid":33,"gid":50,"home":"/var/www","workdir":"/srv","env":{"A":"b=c","EMPTY":""}}'
	equal "$(find "$tmp/out/rootfs" -type c | wc -l)" 0 "device nodes"
	[[ ! -e $tmp/out/rootfs/etc/removed ]] || problem "a file that the second layer removes is there"
	run_ok import "oci:$layout" "$tmp/out-untagged"
	run_error no_source import "oci:$layout:v2" "$tmp/out-v2"
	nothing_left "$tmp/out-v2"
	run_error usage import "$layout" "$tmp/out-dir2"
	run_error no_source import "oci:$root" "$tmp/out-no"
}

test_oci_damaged_blob() {
	local layout=$tmp/layout2
	rm -rf "$layout"
	make_layout "$layout" v1 &>/dev/null || { skip "umoci cannot make a layout" && return; }
	find "$layout/blobs" -type f -size +2 -exec sh -c 'printf x | dd of="$1" bs=1 seek=200 conv=notrunc 2>/dev/null' - {} \;
	run_error bad_archive import "oci:$layout:v1" "$tmp/out"
	nothing_left "$tmp/out"
}

test_oci_overlay_attributes() {
	local layout=$tmp/layout3
	rm -rf "$layout"
	(
		set -e
		umoci --log=error init --layout "$layout" && umoci --log=error new --image "$layout:v1"
		umoci --log=error unpack --image "$layout:v1" "$tmp/bundle"
		cp -a "$root/." "$tmp/bundle/rootfs/"
		setfattr -n user.overlay.redirect -v /etc "$tmp/bundle/rootfs/home"
		umoci --log=error repack --image "$layout:v1" "$tmp/bundle"
	) &>/dev/null || skip "umoci or the file system does not take user.overlay attributes"
	rm -rf "$tmp/bundle"
	[[ -z $skip_reason ]] || return
	run_ok import "oci:$layout:v1" "$tmp/out"
	equal "$(getfattr -Rhd -m - "$tmp/out/rootfs" 2>/dev/null)" ''
}

# --- hostile sources ------------------------------------------------------------------------------------------------

# refused NAME: the archive is refused, nothing is left, and nothing outside was touched.
refused() {
	run_error unsafe_archive import "$archive" "$tmp/out"
	nothing_left "$tmp/out"
	equal "$(cat "$tmp/victim")" safe "$1"
	equal "$(stat -c %h "$tmp/victim")" 1 "$1: links to the victim"
}

test_hostile_names() {
	local name
	echo safe >"$tmp/victim"
	for name in "$tmp/victim" "../../victim" "usr/../../../victim" "./usr/../../../victim" ".." "usr/.."; do
		new_archive hostile
		member file "$name"
		refused "$name"
	done
	new_archive harmless
	member file "usr/..a"
	member file "usr/a..b/..."
	run_ok import "$archive" "$tmp/out"
}

test_hostile_links() {
	local target
	echo safe >"$tmp/victim"
	for target in "$tmp" "../.." "../../../../../../../../../../$tmp"; do
		new_archive through
		member link usr/evil "$target"
		member file usr/evil/victim
		refused "write through a link to $target"
	done
	new_archive swap # a directory, swapped for a link in the middle
	member dir usr/d
	member link usr/d "$tmp"
	member file usr/d/victim
	run import "$archive" "$tmp/out"
	equal "$(cat "$tmp/victim")" safe "swapped directory"
	rm -rf "$tmp/out"
	for target in "$tmp/victim" "../victim" "../../victim"; do
		new_archive hard
		member hard usr/evil "$target"
		member file usr/evil
		refused "hard link to $target"
	done
	new_archive hard-through # a link, and a hard link through it
	member link usr/evil "$tmp"
	member hard usr/stolen usr/evil/victim
	refused "hard link through a link"
}

test_hostile_devices() {
	new_archive devices
	member char usr/null
	member block usr/disk
	member fifo usr/fifo
	run_ok import "$archive" "$tmp/out"
	equal "$(find "$tmp/out/rootfs/usr" -mindepth 1 -printf '%f ')" 'sh '
}

test_hostile_metadata() {
	# Links where the tool looks for its facts: they lead within the image or nowhere, never to this machine's files.
	local evil=$tmp/evil
	rm -rf "$evil"
	make_root "$evil"
	ln -sf /etc/shadow "$evil/etc/passwd"
	ln -sfn "$root/usr/share/jupyter" "$evil/usr/share/jupyter2"
	rm -rf "$evil/usr/share/jupyter"
	ln -s "$root/usr/share/jupyter" "$evil/usr/share/jupyter"
	ln -sf ../../../../../../../../etc/os-release "$evil/etc/os-release" # itself
	rm -rf "$evil/var/lib/dpkg"
	ln -s /var/lib/dpkg "$evil/var/lib/dpkg"
	run_ok import "$evil" "$tmp/out"
	equal "$(jq -c '[.os.id, .packages, .kernelspecs, .defaults.user, .defaults.workdir]' "$tmp/out/image.json")" '["unknown",[],[],"root","/"]'
}

test_not_an_archive() {
	local sort
	echo 'hello' >"$tmp/text.tar"
	gzip -c "$tmp/text.tar" >"$tmp/text.tar.gz"
	printf '#mtree\n./usr type=dir\n./usr/shadow type=file contents=/etc/shadow\n' >"$tmp/mtree.tar"
	: >"$tmp/empty.tar"
	tar -C "$root" -czf "$tmp/whole.tar.gz" .
	head -c 600 "$tmp/whole.tar.gz" >"$tmp/cut.tar.gz"
	tar -C "$root" -cf "$tmp/whole.tar" .
	head -c 5000 "$tmp/whole.tar" >"$tmp/cut.tar"
	for sort in text.tar text.tar.gz mtree.tar empty.tar cut.tar.gz cut.tar; do
		run_error bad_archive import "$tmp/$sort" "$tmp/out"
		nothing_left "$tmp/out"
	done
}

test_not_a_rootfs() {
	mkdir -p "$tmp/photos"
	echo x >"$tmp/photos/a.jpg"
	run_error not_a_rootfs import "$tmp/photos" "$tmp/out"
	nothing_left "$tmp/out"
}

test_foreign_owner() {
	cp -a "$root" "$tmp/shifted"
	chown 100000 "$tmp/shifted/usr/bin/sh"
	run_error owner_range import "$tmp/shifted" "$tmp/out"
	nothing_left "$tmp/out"
}

# --- arguments ------------------------------------------------------------------------------------------------------

test_wrong_arguments() {
	run_error usage
	run_error usage frobnicate
	run_error usage import "$root"
	run_error usage import "$root" "$tmp/out" --frob
	run_error usage import "$root" "$tmp/out" --name
	run_error usage import "$root" "$tmp/out" --name '../x'
	run_error usage build "$recipe" "$tmp/out" --suite 'trixie; rm -rf /'
	run_error usage build "$recipe" "$tmp/out" --mirror 'gopher://x'
	run_error usage import "$root" "$root/out"
	run_error no_source import "$tmp/nowhere" "$tmp/out"
	run_error out_not_writable import "$root" "$tmp/no/such/out"
	run_error no_recipe build "$tmp" "$tmp/out"
	nothing_left "$tmp/out"
	mkdir "$tmp/out-there"
	run_error out_exists import "$root" "$tmp/out-there"
	check rmdir "$tmp/out-there"
	ln -s "$tmp" "$tmp/out-link.partial"
	run_error out_exists import "$root" "$tmp/out-link"
	rm "$tmp/out-link.partial"
	run_ok --help
}

test_not_root() {
	local answer
	chmod 0755 "$tmp"
	answer=$(setpriv --reuid 65534 --regid 65534 --clear-groups "$tool" import "$root" "$tmp/out" 2>/dev/null)
	equal "$(jq -r .code <<<"$answer")" not_root
}

# --- interruptions --------------------------------------------------------------------------------------------------

# start VERB ARG...: runs the tool in the background until it is in the middle of its work.
start() {
	"$tool" "$@" >"$tmp/background" 2>/dev/null </dev/null &
	background=$!
	wait_for test -e "$tmp/started"
}

stopped_by_signal() {
	local signal=$1
	shift
	start "$@"
	kill "-$signal" "$background"
	wait "$background"
	equal "$?" 1 "exit status after $signal"
	equal "$(tail -n 1 "$tmp/background" | jq -r .code)" interrupted
	nothing_left "$tmp/out"
	check no_sleepers
}

test_signal_in_import() {
	play_slow cp "$tmp/out"
	stopped_by_signal TERM import "$root" "$tmp/out"
	play_slow cp "$tmp/out"
	stopped_by_signal HUP import "$root" "$tmp/out"
	unplay
}

test_signal_in_build() {
	play_slow mmdebstrap "$tmp/out"
	stopped_by_signal TERM build "$recipe" "$tmp/out"
	unplay
}

test_killed_run_is_cleaned_by_the_next() {
	play_slow cp "$tmp/out"
	start import "$root" "$tmp/out"
	kill -KILL "$background"
	wait "$background" 2>/dev/null
	wait_for no_sleepers
	check test -d "$tmp/out.partial"
	[[ ! -e $tmp/out ]] || problem "a half-made image is visible"
	equal "$(grep -c "$tmp" /proc/mounts)" 0 "mounts left"
	unplay
	run_ok import "$root" "$tmp/out"
	equal "$(jq -s 'any(.[]; .stage == "clean")' <<<"$out")" true
	[[ ! -e $tmp/out.partial && ! -e $tmp/out/rootfs/half ]] || problem "leftovers of the killed run"
}

test_two_at_once() {
	play_slow cp "$tmp/out"
	start import "$root" "$tmp/out"
	unplay
	run_error busy import "$root" "$tmp/out"
	check test -e "$tmp/out.partial/rootfs/half"
	kill -TERM "$background"
	wait "$background"
	nothing_left "$tmp/out"
}

test_reader_goes_away() {
	play_slow cp "$tmp/out"
	"$tool" import "$root" "$tmp/out" 2>/dev/null </dev/null | head -n 1 >/dev/null &
	wait_for test -e "$tmp/started"
	: >"$tmp/go on" # the next line, that it failed, meets a closed pipe
	wait
	check no_sleepers
	nothing_left "$tmp/out"
	unplay
}

test_disk_full() {
	local source=$tmp/big
	mkdir -p "$tmp/small" "$source"
	cp -a "$root/." "$source"
	head -c 12M /dev/urandom >"$source/usr/big"
	tar -C "$source" -cf "$tmp/big.tar" .
	mount -t tmpfs -o size=8m small "$tmp/small" || { skip "no tmpfs can be mounted here" && return; }
	run_error disk_full import "$source" "$tmp/small/out"
	nothing_left "$tmp/small/out"
	run_error disk_full import "$tmp/big.tar" "$tmp/small/out"
	nothing_left "$tmp/small/out"
	equal "$(ls -A "$tmp/small")" ''
	umount "$tmp/small"
}

# --- build ----------------------------------------------------------------------------------------------------------

make_recipe() {
	mkdir -p "$1/files/etc" "$1/late"
	cat >"$1/recipe.json" <<-'END'
		{"name": "tiny", "suite": "trixie", "packages": [], "path_exclude": ["/usr/share/doc/*", "/usr/share/man/*"],
		 "late": {"late": "/usr/lib/late"},
		 "defaults": {"user": "root", "uid": 0, "gid": 0, "home": "/root", "workdir": "/root", "env": {"A": "b"}}}
	END
	echo hello >"$1/files/etc/greeting"
	# shellcheck disable=SC2016
	printf '#!/bin/sh\nset -e\ntest -c /dev/null\ntest "$(cat /etc/greeting)" = hello\necho done >/etc/setup-ran\n' >"$1/setup.sh"
}

test_recipe_id() {
	local first base
	first=$("$tool" recipe-id "$recipe") base=$("$tool" recipe-id "$recipe" --base)
	[[ $first =~ ^[0-9a-f]{16}$ ]] || problem "not an id: $first"
	cp -r "$recipe" "$tmp/recipe2"
	equal "$("$tool" recipe-id "$tmp/recipe2")" "$first" "elsewhere"
	mkdir -p "$tmp/recipe2/late/__pycache__"
	touch "$tmp/recipe2/README.md" "$tmp/recipe2/late/__pycache__/x.pyc"
	equal "$("$tool" recipe-id "$tmp/recipe2")" "$first" "README and byte code do not count"
	echo 'x = 1' >"$tmp/recipe2/late/new.py"
	[[ $("$tool" recipe-id "$tmp/recipe2") != "$first" ]] || problem "a late file does not count"
	equal "$("$tool" recipe-id "$tmp/recipe2" --base)" "$base" "the base leaves late files out"
	echo 'echo more' >>"$tmp/recipe2/setup.sh"
	[[ $("$tool" recipe-id "$tmp/recipe2" --base) != "$base" ]] || problem "setup.sh does not count"
}

test_bad_recipe() {
	local change
	for change in '{' '.name = 3' '.packages = ["a; rm -rf /"]' '.late = {"late": "/usr/../../etc"}' 'del(.defaults.uid)'; do
		rm -rf "$tmp/recipe3"
		cp -r "$recipe" "$tmp/recipe3"
		if [[ $change == '{' ]]; then echo '{' >"$tmp/recipe3/recipe.json"; else
			jq "$change" "$recipe/recipe.json" >"$tmp/recipe3/recipe.json"
		fi
		run_error bad_recipe build "$tmp/recipe3" "$tmp/out"
	done
}

test_why_a_build_failed() {
	local line code
	while IFS='|' read -r code line; do
		play mmdebstrap <<-END
			#!/bin/sh
			mkdir -p '$tmp/out.partial/rootfs'
			echo "$line" >&2
			echo "E: mmdebstrap failed to run" >&2
			exit 25
		END
		run_error "$code" build "$recipe" "$tmp/out"
		nothing_left "$tmp/out"
	done <<-'END'
		disk_full|dpkg: error: failed to write: No space left on device
		package_missing|E: Unable to locate package frobnicator
		mirror_untrusted|W: GPG error: http://x trixie InRelease: NO_PUBKEY 0E98404D386FA1D9
		mirror_unreachable|E: Failed to fetch http://x/InRelease  Could not resolve 'x'
		build_failed|E: something new
	END
	play mmdebstrap <<<$'#!/bin/sh\nkill -9 $$'
	run_error build_failed build "$recipe" "$tmp/out"
	unplay
	run_error mirror_unreachable build "$recipe" "$tmp/out" --mirror http://127.0.0.1:9/debian --security-mirror none
	nothing_left "$tmp/out"
}

test_real_build() {
	run build "$recipe" "$tmp/out base's" --base-only
	if [[ $(jq -r .code <<<"$last") == mirror_unreachable ]]; then
		skip "no Debian mirror can be reached"
		return
	fi
	equal "$status" 0 "$last"
	local rootfs="$tmp/out base's/rootfs"
	equal "$(cat "$rootfs/etc/setup-ran")" "done"
	equal "$(stat -c %a "$rootfs/etc/greeting")" 644
	equal "$(cat "$rootfs/etc/hostname")" sandbox
	equal "$(grep -v '^#' "$rootfs/etc/resolv.conf")" '' "this machine's resolver"
	equal "$(find "$rootfs" -type b -o -type c | wc -l)" 0 "device nodes"
	check grep -q '^deb \[signed-by=.*\] .* main$' "$rootfs/etc/apt/sources.list"
	equal "$(find "$rootfs"/{dev,run,tmp,usr/share/man,var/cache/apt/archives,var/lib/apt/lists} -type f | wc -l)" 0
	[[ ! -e $rootfs/usr/lib/late ]] || problem "the base has a late folder"
	equal "$(jq -s '[.[].percent | numbers] == ([.[].percent | numbers] | sort) and length > 20' <<<"$out")" true "percentages rise"

	# From that base: the late folder is compiled by the image's Python, which this one lacks.
	run_error bad_recipe build "$recipe" "$tmp/out" --base "$tmp/out base's"
	printf '#!/bin/sh\nexit 0\n' >"$rootfs/usr/bin/python3"
	chmod 0755 "$rootfs/usr/bin/python3"
	run_ok build "$recipe" "$tmp/out" --base "$tmp/out base's"
	check test -e "$tmp/out/rootfs/usr/lib/late/mod.py"
	check test "$tmp/out/rootfs/usr/bin/dpkg" -ef "$rootfs/usr/bin/dpkg"
	[[ ! -e $rootfs/usr/lib/late ]] || problem "the base was changed"
	equal "$(jq -r .recipe.id "$tmp/out/image.json")" "$("$tool" recipe-id "$recipe")"
	echo 'echo more' >>"$recipe/setup.sh"
	run_error bad_base build "$recipe" "$tmp/out2" --base "$tmp/out base's"
	run_error bad_base build "$recipe" "$tmp/out2" --base "$root"
}

test_signal_in_real_build() {
	"$tool" build "$recipe" "$tmp/out" 2>/dev/null >"$tmp/background" </dev/null &
	background=$!
	# As long as the mirror takes to answer; a build that cannot go on ends by itself.
	until grep -q '"stage":"\(install\|error\)"' "$tmp/background" || ! kill -0 "$background" 2>/dev/null; do
		sleep 0.05
	done
	kill -TERM "$background" 2>/dev/null
	wait "$background"
	if grep -q mirror_unreachable "$tmp/background"; then
		skip "no Debian mirror can be reached"
		return
	fi
	equal "$(tail -n 1 "$tmp/background" | jq -r .code)" interrupted
	nothing_left "$tmp/out"
	equal "$(grep -c "$tmp" /proc/mounts)" 0 "mounts left"
}

# --- the real image -------------------------------------------------------------------------------------------------

# shellcheck disable=SC2016 # scripts for the shell in the image
# Runs a shell script as the image's user in a throw-away copy of the cached image, without a network.
in_image() {
	mkdir -p "$tmp/layer"
	unshare --mount --propagation private --pid --fork --net --uts --mount-proc bash -euc '
		mount -t tmpfs layer "$2"; mkdir "$2"/{upper,work,root}; root=$2/root
		mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$root"
		mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; mount -t tmpfs run "$root/run"
		hostname some-sandbox; ip link set lo up
		exec chroot --userspec=1000:1000 "$root" env -i HOME=/home/user USER=user TERM=dumb LANG=C.UTF-8 \
			PATH=/home/user/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -euc "cd /workspace; $3"
	' - "$image/rootfs" "$tmp/layer" "$1" 2>&1
}

# shellcheck disable=SC2016
test_cached_image() {
	image=${COPPICE_IMAGE_CACHE:-/var/cache/coppice/images}/$("$tool" recipe-id "$repo/images/code-interpreter")
	if [[ ! -d $image ]]; then
		skip "$image is not there; tools/test-image.sh makes it"
		return
	fi
	run_ok describe "$image" --verify
	equal "$(in_image 'id -un; id -gn; pwd; touch here; sudo -n id -un; sudo -n touch /etc/there')" $'user\nuser\n/workspace\nroot'
	equal "$(find "$image/rootfs" \( -type b -o -type c -o -type s -o -type p \) | wc -l)" 0
	equal "$(in_image 'curl --version | head -c 4; git --version | head -c 3; locale charmap; ps --version | head -c 2')" $'curlgitUTF-8\nps'
	in_image 'cp -r /usr/share/python-wheels/setuptools-*.whl . && python3 - <<END
import importlib, subprocess, sys, os, zipfile
with zipfile.ZipFile("tiny-1.0-py3-none-any.whl", "w") as z:
    z.writestr("tiny.py", "x = 41 + 1")
    z.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    z.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("tiny-1.0.dist-info/RECORD", "")
subprocess.run(["pip", "install", "-q", "--no-index", "./tiny-1.0-py3-none-any.whl"], check=True)
importlib.invalidate_caches()
import tiny
assert tiny.x == 42  # importable in the process that was running when it was installed
subprocess.run(["pip", "uninstall", "-q", "-y", "--break-system-packages", "tiny"], check=True)
subprocess.run(["sudo", "pip", "install", "-q", "--no-index", "./tiny-1.0-py3-none-any.whl"], check=True)
END' >"$tmp/pip.log" || problem "pip: $(tail -n 3 "$tmp/pip.log")"
	in_image 'python3 - <<END
import matplotlib, os
matplotlib.use("agg")
import matplotlib.font_manager as fm
assert not [f for f in os.listdir("/home/user/.cache/matplotlib") if "lock" in f]
before = os.stat("/home/user/.cache/matplotlib/" + os.listdir("/home/user/.cache/matplotlib")[0]).st_mtime_ns
import matplotlib.pyplot as plt, pandas, numpy, scipy.stats, sklearn.cluster, PIL.Image, openpyxl
plt.plot([1, 2]); plt.savefig("plot.png")
assert before == os.stat("/home/user/.cache/matplotlib/" + os.listdir("/home/user/.cache/matplotlib")[0]).st_mtime_ns
END' >"$tmp/plot.log" || problem "libraries: $(tail -n 3 "$tmp/plot.log")"
	equal "$(in_image 'find /usr/lib/python3 -name "*.py" -path "*/pandas/core/*" ! -path "*/tests/*" | while read -r f; do
		test -e "${f%/*}/__pycache__/$(basename "$f" .py).cpython-313.pyc" || echo "$f"; done | head -n 3')" '' "byte code missing"
	equal "$(in_image 'jupyter=$(python3 -c "import ipykernel; print(ipykernel.__version__)"); echo $jupyter')" 6.29.5
}

# --------------------------------------------------------------------------------------------------------------------

pattern=${1:-}
if ((EUID != 0)); then
	echo "# needs root: images hold files of many owners"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
fi
root=$tmp/root
make_root "$root"
recipe=$tmp/recipe
make_recipe "$recipe"
echo 'x = 1' >"$recipe/late/mod.py"

for name in $(declare -F | sed -n 's/^declare -f test_//p' | grep -vx case); do
	line=$(grep -n "^test_$name()" "$0")
	printf '%s %s\n' "${line%%:*}" "$name"
done | sort -n | cut -d ' ' -f 2 >"$tmp/order"
mapfile -t order <"$tmp/order"
for name in "${order[@]}"; do
	test_case "$name"
done
echo "1..$number"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
