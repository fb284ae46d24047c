# shellcheck shell=bash
# What every part of coppice-image speaks with: progress, errors, running a tool while reading what it says.

# Exit status of subshells and of the worker that means "the error line has been printed".
REPORTED=113 # a status that no tool we run ends with
worker_role= # set in the worker

# emit STAGE MESSAGE PERCENT|null
emit() {
	jq -nc --arg stage "$1" --arg message "$2" --argjson percent "$3" \
		'{stage: $stage, message: $message, percent: $percent}' >&3
}

report_error() {
	if command -v jq >/dev/null; then
		jq -nc --arg code "$1" --arg message "$2" '{stage: "error", code: $code, message: $message}' >&3
	else # the one message that must do without jq is that there is no jq
		printf '{"stage":"error","code":"%s","message":"%s"}\n' "$1" "$2" >&3
	fi
}

# fail CODE MESSAGE: the last line of a run.
fail() {
	report_error "$1" "$2" || true # nobody may be listening any more
	leave
}

leave() {
	trap - ERR
	if [[ -n $worker_role ]] || ((BASH_SUBSHELL)); then exit "$REPORTED"; fi
	exit 1
}

# The ERR trap: a command failed that no line of ours expected to. A failed subshell has already reported.
unexpected() {
	(($1 == REPORTED)) || report_error internal \
		"'${2:0:200}' failed with status $1 (line $3); its last words are on stderr" || true
	leave
}

need_tool() {
	command -v "$1" >/dev/null || fail tool_missing "the program $1 is missing; install it with: apt-get install $2"
}

check_word() {
	[[ $2 =~ $3 ]] || fail usage "--$1 cannot be '$2'; see coppice-image --help"
}

# --- tools with progress --------------------------------------------------------------------------------------------

said=() # the last lines a watched tool printed, for explaining its failure

# watch READER TOOL ARG...: runs the tool, copies its output to stderr, hands each line to the function READER.
# Returns the tool's status. Only for the worker.
watch() {
	local reader=$1 line
	shift
	said=()
	# lastpipe: the loop runs in this shell, so `said` and the reader's variables stay.
	run_alone "$@" 2>&1 </dev/null | while IFS= read -r line || [[ -n $line ]]; do
		printf '%s\n' "$line"
		said+=("$line")
		((${#said[@]} <= 40)) || said=("${said[@]:1}")
		"$reader" "$line"
	done || return "${PIPESTATUS[0]}"
}

# Runs a tool and ends whatever it leaves running: a daemon started by a package's script would write into the image
# later, and would hold the pipe of `watch` open for ever.
run_alone() {
	local status=0
	"$@" || status=$?
	# All processes of the namespace but pid 1, which is the worker, and this one. Nowhere else may this line run.
	if [[ -n $worker_role ]] && (($$ == 1)); then kill -KILL -- -1 2>/dev/null || true; fi
	return "$status"
}

read_nothing() { :; }

# The line among the last ones that matches, or nothing.
said_line() {
	local i
	for ((i = ${#said[@]} - 1; i >= 0; i--)); do
		if [[ ${said[i]} =~ $1 ]]; then
			printf '%s\n' "${said[i]:0:300}"
			return
		fi
	done
}

# Ends the run when the tool's words show that the disk is full. $1: directory on that disk.
fail_if_disk_full() {
	local line free
	line=$(said_line 'No space left on device|Disk quota exceeded|enough free space')
	[[ -z $line ]] || fail_disk_full "$1"
	# Some tools only say "write error".
	free=$(df --output=avail -B1024 -- "$1" | tail -n 1)
	((free >= 1024)) || fail_disk_full "$1"
}

fail_disk_full() {
	fail disk_full "the disk that holds ${1%/*} is full; free some space there (the code-interpreter image needs about \
2 GiB while it is built) or choose another place"
}
