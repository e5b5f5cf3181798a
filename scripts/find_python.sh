#!/bin/sh
# Print the path of an interpreter of the version asked for (3.12); fail if there is none.
# A pyenv shim exists for every installed version and fails when run, so each candidate is asked.
set -eu
version=$1
for candidate in "$(command -v "python$version" || true)" \
    "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python \
    "${XDG_DATA_HOME:-$HOME/.local/share}/uv/python/cpython-$version".*/bin/python; do
    [ -x "$candidate" ] || continue
    is=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    if [ "$is" = "$version" ]; then
        echo "$candidate"
        exit 0
    fi
done
exit 1
