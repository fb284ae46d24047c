#!/bin/sh
# Runs shellcheck on every shell script of the tree.  Scripts are known by their first line; a file without one is a
# fragment and is checked as part of the script that sources it (-x).
set -eu
cd "$(dirname "$0")/.."
git ls-files -co --exclude-standard | while read -r file; do
        if [ -f "$file" ] && head -c 64 "$file" | head -n 1 | grep -aqE '^#!.*[/ ](ba|da)?sh( |$)'; then
                echo "$file"
        fi
done | xargs -r shellcheck -x --severity=warning
