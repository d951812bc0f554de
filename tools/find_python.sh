#!/bin/sh
# Print the first Python that PyMC 6 can run on (3.12 or newer), or say what to install.
for candidate in "$PYTHON" python3.13 python3.12 python3 python python3.14; do
    [ -n "$candidate" ] || continue
    found=$(command -v "$candidate" 2>/dev/null) || continue
    # a pyenv shim may exist for a version that is not active here: ask it to run
    if "$found" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
        "$found" -c 'import sys; print(sys.executable)'
        exit 0
    fi
done
if command -v uv >/dev/null 2>&1 && found=$(uv python find '>=3.12' 2>/dev/null); then
    echo "$found"
    exit 0
fi
cat >&2 <<TXT
pymc_dp needs Python 3.12 or newer, with its venv module, and found none.
Install one, for example:  pyenv install 3.12   or   uv python install 3.12
or point to one you have:  make PYTHON=/path/to/python3.12 test
TXT
exit 1
