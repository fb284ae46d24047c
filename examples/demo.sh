#!/usr/bin/env bash
# make demo: a session with Coppice, for real.  Each command is printed, then its output.
#
#       examples/demo.sh [BUILD]
#
# Everything is kept in a temporary COPPICE_HOME that is removed at the end; the image is built there, or imported from the
# cache of tools/test-image.sh, so that a second run takes seconds.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
export PATH=$build/bin:$PATH
work=$(mktemp -d "${COPPICE_DEMO_DIR:-/var/tmp}/coppice-demo.XXXXXX")
export COPPICE_HOME=$work/home
bold=$'\e[1m' plain=$'\e[0m'
[ -t 1 ] || bold='' plain=''

cleanup() {
        local status=$?
        trap - EXIT
        coppice rm --all >"$work/rm.log" 2>&1 || cat "$work/rm.log" >&2
        if [ -n "${serve_pid:-}" ]; then
                kill "$serve_pid" 2>/dev/null || true
                wait "$serve_pid" 2>/dev/null || true
        fi
        if [ "$status" != 0 ] && [ -s "$work/serve.log" ]; then tail -n 20 "$work/serve.log" >&2; fi
        rm -rf --one-file-system "$work"
        exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }

# show WANTED COMMAND…: prints and runs it; its exit status must be WANTED.
show() {
        local wanted=$1 status=0 word line=
        shift
        for word in "$@"; do
                if [[ $word =~ ^[A-Za-z0-9_./:=@-]+$ ]]; then line+=" $word"; else line+=" '$word'"; fi
        done
        printf '%s$%s%s\n' "$bold" "$line" "$plain"
        "$@" || status=$?
        if [ "$status" != "$wanted" ]; then
                echo "demo: exit status $status instead of $wanted" >&2
                exit 1
        fi
}

say "the image (built once, kept in a cache outside the tree)"
image=$("$root/tools/test-image.sh")

say "a daemon on its Unix socket and on a loopback port"
mkdir -p "$COPPICE_HOME"
printf '%s$ coppice serve --listen 127.0.0.1:0 &%s\n' "$bold" "$plain"
mkfifo "$work/ready"
coppice serve --listen 127.0.0.1:0 --ready-fd 9 9<>"$work/ready" 2>"$work/serve.log" &
serve_pid=$!
read -r -t 30 ready <"$work/ready" || { echo "demo: the daemon did not start" >&2; exit 1; }
echo "$ready"
port=${ready##*tcp=}
show 0 coppice image import "$image" --name code-interpreter
show 0 coppice image ls

say "a session: variables stay, an error resets nothing"
show 0 coppice new --name demo
show 0 coppice run demo 'x = 41'
show 0 coppice run demo 'print(x + 1)'
show 1 coppice run demo '1/0'
show 0 coppice run demo 'x'

say "a script, the whole answer as JSON"
cat >"$work/script.py" <<'END'
import pandas as pd
table = pd.DataFrame({"n": [1, 2, 3], "square": [n * n for n in (1, 2, 3)]})
print(table)
table.square.sum()
END
cd "$work"
show 0 coppice run demo -f script.py --timeout 60 --json

say "commands: raw output, their own exit status"
show 0 coppice exec demo 'ls -la ~ && echo $?'
show 3 coppice exec demo 'echo to stderr >&2; exit 3'
printf '%s$ coppice exec demo --detach %s%s\n' "$bold" "'python3 -m http.server 8000'" "$plain"
detached=$(coppice exec demo --detach 'python3 -m http.server 8000')
echo "$detached"
pid=$(jq .pid <<<"$detached")
show 0 coppice exec demo --status "$pid"
show 0 coppice exec demo 'sleep 1; curl -sS -o /dev/null -w "the server inside answers: %{http_code}\n" http://127.0.0.1:8000/'
show 0 coppice exec demo --kill "$pid"

say "files"
printf 'x,y\n1,1\n2,4\n3,9\n' >data.csv
show 0 coppice cp data.csv demo:/workspace/
show 0 coppice run demo 'import pandas as pd, matplotlib.pyplot as plt
pd.read_csv("/workspace/data.csv").plot(x="x", y="y")
plt.savefig("/workspace/plot.png")'
show 0 coppice cp demo:/workspace/plot.png .
show 0 file plot.png

say "a limit that works, and what is left after it"
show 124 coppice run demo 'while True: pass' --timeout 1
show 0 coppice run demo 'x'

say "a kernel that dies is told, and so is what was lost with it"
show 137 coppice run demo 'import os; os._exit(7)'
show 0 coppice run demo 'print("a new kernel")'

say "a state on disk: no process, no memory, until something needs it"
show 0 coppice run demo 'import time; rows = list(range(1000)); open("/workspace/rows.txt", "w").write(str(rows)); began = time.time()'
show 0 coppice suspend demo
show 0 coppice ls
show 0 coppice run demo 'len(rows)'

say "a snapshot; what goes wrong after it is undone, in memory and on disk"
show 0 coppice snapshot demo --name clean
show 0 coppice run demo 'import os; os.remove("/workspace/rows.txt"); rows = None'
show 0 coppice undo demo
show 0 coppice run demo 'import os; len(rows), os.path.exists("/workspace/rows.txt")'
show 0 coppice log demo

say "forks: live copies that share nothing once they write"
show 0 coppice fork demo -n 2 --name try --label search=demo
show 0 coppice run try-1 'rows.append("first"); len(rows)'
show 0 coppice run try-2 'rows.clear(); len(rows)'
show 0 coppice run demo 'len(rows)'
show 0 coppice new --from clean --name later
show 0 coppice run later 'len(rows)'
show 0 coppice snapshot ls
show 0 coppice rm try-1 try-2 later
show 0 coppice snapshot rm clean

say "looking around"
show 0 coppice ls
show 0 coppice info demo
show 0 coppice logs demo
show 0 coppice info --daemon --json

say "the same over TCP, with a token"
token=$(coppice token new demo --expires 1h)
printf '%s$ curl -H "Authorization: Bearer …" http://127.0.0.1:%s/api/sandboxes%s\n' "$bold" "$port" "$plain"
curl -sS -H "Authorization: Bearer $token" "http://127.0.0.1:$port/api/sandboxes" | jq -c '.sandboxes[] | {id, name, state}'

say "the end: nothing is left"
show 0 coppice rm demo
show 0 coppice ls
show 0 coppice doctor
