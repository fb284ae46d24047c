#!/bin/sh
# Gathers the programs of a build tree in BUILD/bin, as hard links: /proc/self/exe then names a path in bin/, and a
# program finds its siblings beside itself.  BUILD/libexec and the other folders that programs read at run time are links
# into the source tree, so the layout under BUILD is the one of an installation prefix.
set -eu

build=${1:?usage: tools/link-bin.sh BUILD}
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$build/bin"
for folder in cli compare daemon keeper init freezer pack; do
        for program in "$build/src/$folder"/coppice*; do
                case ${program##*/} in *.*) continue ;; esac # folders of objects, libraries
                [ ! -f "$program" ] || ln -f "$program" "$build/bin/"
        done
done
for folder in libexec images api; do
        [ ! -d "$source/$folder" ] || ln -sfn "$source/$folder" "$build/$folder"
done
