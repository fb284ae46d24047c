# pip install of a local package, frozen in the middle of its build: it is installed and works.
# victim: needs=/usr/lib/python3/dist-packages/pip
# victim: timeout=60
# What a source that runs on does to the files is not undone for the copy, so no run-on.
# victim: flavours=unfrozen,kill,twice,tracked
export HOME=$PWD PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
rm -rf pkg target building && mkdir -p pkg/frozen_pkg
here=$PWD
echo "answer = 42" >pkg/frozen_pkg/__init__.py
cat >pkg/setup.py <<PY
import os, time
from setuptools import setup
open("$here/building", "w").close()
while not os.path.exists("$here/go"):
    time.sleep(0.005)
setup(name="frozen-pkg", version="1.2.3", packages=["frozen_pkg"])
PY
/usr/bin/python3 -m pip install -q --no-build-isolation --no-deps --root-user-action=ignore --target target ./pkg >log-pip 2>&1 &
while [ ! -e building ]; do
        kill -0 $! 2>/dev/null || { echo "SKIP: pip: $(tail -n 1 log-pip)"; exit 77; }
        sleep 0.02
done
sleep 0.1
echo READY
wait $! || { echo "FAIL: pip: $(tail -n 3 log-pip)"; exit 1; }
[ "$(PYTHONPATH=target /usr/bin/python3 -c 'import frozen_pkg; print(frozen_pkg.answer)')" = 42 ] || { echo "FAIL: not installed"; exit 1; }
echo PASS
