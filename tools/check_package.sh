#!/bin/sh
# Build the source distribution, from it the wheel, install that into a clean environment, and run there the example and
# a few quick tests of the unpacked source distribution, without its sources.  tools/check_package.sh [python]
set -eu
python=$(cd "$(dirname "${1:-.venv/bin/python}")" && pwd)/$(basename "${1:-.venv/bin/python}")
cd "$(dirname "$0")/.."
root=$PWD
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH || true

rm -rf dist
"$python" -m build --outdir dist . >"$tmp/build.log" 2>&1 || { cat "$tmp/build.log"; exit 1; }
ls -l dist

"$python" -m venv "$tmp/venv"
"$tmp/venv/bin/python" -m pip install --quiet dist/*.whl pytest hypothesis pyyaml
mkdir "$tmp/sdist"
tar -xzf dist/*.tar.gz -C "$tmp/sdist" --strip-components=1
cd "$tmp/sdist"
for needed in pymc_dp/py.typed tests/oracles CONTRIBUTING.md SECURITY.md LICENSE CITATION.cff; do
    test -e "$needed" || { echo "the source distribution lacks $needed"; exit 1; }
done
rm -rf pymc_dp # what is tested is what was installed
"$tmp/venv/bin/python" -c "
import pathlib, pymc_dp
where = pathlib.Path(pymc_dp.__file__)
assert '$tmp' in str(where), where
assert (where.parent / 'py.typed').exists(), 'types are not shipped'
import pymc as pm
with pm.Model():
    x = pm.Normal('x', pm.Normal('mu', 7, 2), 1.2, shape=200)
    noise = pymc_dp.Laplace(epsilon=0.5, sensitivity=9)
    pymc_dp.Privatized('released', pymc_dp.clamp(x, 3, 12).sum(), noise, observed=1423.7)
    idata = pymc_dp.sample(500, tune=500, chains=1, random_seed=1, progressbar=False, quiet=True)
assert abs(float(idata.posterior['mu'].mean()) - 7.13) < 0.15
"
"$tmp/venv/bin/python" -m pip check
"$tmp/venv/bin/python" -m pytest -p no:cacheprovider tests/test_packaging.py tests/test_architecture.py \
    tests/mechanisms/test_parameters.py tests/accounting/test_gaussian.py
cd "$root"
echo "package: $(ls dist | tr '\n' ' ')"
