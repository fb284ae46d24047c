# git clone over loopback (git daemon, pack-objects, index-pack), frozen in the middle: the clone is whole.
# victim: needs=git
# victim: timeout=60
# What a source that runs on does to the files is not undone for the copy, so no run-on.
# victim: flavours=unfrozen,kill,twice,tracked
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
rm -rf origin copy
git init -q origin && cd origin || exit 1
for i in $(seq 1 12); do
        head -c 400000 /dev/urandom >"f$i"
        git add "f$i" && git commit -qm "file $i" || exit 1
done
cd ..
git daemon --reuseaddr --listen=127.0.0.1 --port=9499 --base-path="$PWD" --export-all --informative-errors >daemon-log 2>&1 &
daemon=$!
for _ in $(seq 100); do grep -q Ready daemon-log && break; git ls-remote -q git://127.0.0.1:9499/origin >/dev/null 2>&1 && break; sleep 0.05; done
git clone -q git://127.0.0.1:9499/origin copy >clone-log 2>&1 &
clone=$!
for _ in $(seq 400); do ls copy/.git/objects/pack/tmp_pack_* >/dev/null 2>&1 && break; kill -0 $clone 2>/dev/null || break; sleep 0.005; done
echo READY
wait $clone || { echo "FAIL: clone: $(cat clone-log)"; exit 1; }
git -C copy fsck --full >/dev/null 2>&1 || { echo "FAIL: fsck"; exit 1; }
[ "$(git -C copy rev-parse HEAD)" = "$(git -C origin rev-parse HEAD)" ] || { echo "FAIL: another HEAD"; exit 1; }
cmp -s origin/f12 copy/f12 || { echo "FAIL: another file"; exit 1; }
while [ ! -e go ]; do sleep 0.01; done
git ls-remote -q git://127.0.0.1:9499/origin >/dev/null || { echo "FAIL: the daemon does not answer"; exit 1; }
kill $daemon
echo PASS
