#!/bin/bash
# Runs in the new root, as root, after the packages are in.
set -euo pipefail

chmod 0440 /etc/sudoers.d/user
echo 'LANG=C.UTF-8' >/etc/default/locale
useradd --create-home --uid 1000 --user-group --shell /bin/bash user
install -d -o user -g user /workspace

as_user() {
	setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/user USER=user "$@"
}

# Python looks for the user's site-packages only when it starts: without the folder, what `pip install` puts there
# in a cell could not be imported before the kernel is started anew.
# shellcheck disable=SC2016
as_user python3 -c 'import os, site; os.makedirs(site.getusersitepackages())'

# The first plot would spend seconds on looking for fonts, and the first kernel on making its profile.
warm='
import matplotlib.font_manager
from IPython.core.profiledir import ProfileDir
from IPython.paths import get_ipython_dir
ProfileDir.create_profile_dir_by_name(get_ipython_dir(), "default")
'
as_user python3 -c "$warm"
HOME=/root python3 -c "$warm"
# A profile to copy or to mount read-only, for kernels that are not to share one.
IPYTHONDIR=/usr/share/coppice/ipython HOME=/root python3 -c "$warm"

# The libraries' own tests and their data are a fifth of the image. The helpers beside them stay: numpy.testing, which
# SciPy imports, takes one from numpy._core.tests. (dpkg cannot exclude them: py3compile would stumble.)
find /usr/lib/python3/dist-packages -path '*/tests/*' -type f \
	\( -name 'test_*' -o -path '*/baseline_images/*' -o -path '*/tests/data/*' -o -path '*/tests/examples/*' \) -delete
find /usr/lib/python3/dist-packages -path '*/tests/*' -type d -empty -delete

# Byte code for everything, with the packages' own settled times; quiet about files of other Python versions.
python3 -m compileall -q -j 2 /usr/lib/python3/dist-packages /usr/lib/python3.* >/dev/null || true

# An image whose libraries do not import must not come into being.
as_user python3 - <<'END'
import matplotlib.pyplot, numpy.testing, pandas.testing, PIL.Image, openpyxl, requests, sympy, tabulate
import scipy.interpolate, scipy.optimize, scipy.signal, scipy.sparse.linalg, scipy.special, scipy.stats
import sklearn.cluster, sklearn.datasets, sklearn.ensemble, sklearn.linear_model, sklearn.model_selection
import ipykernel.kernelapp, IPython
END
