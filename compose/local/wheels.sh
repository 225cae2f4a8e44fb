#!/bin/sh
# Gathers, where the package index can be reached, what the image is built from where it cannot: wheels/ beside the
# Dockerfile, for the Python version of the base image.
#
#   compose/local/wheels.sh PYTHON [FOLDER [VERSION]]        compose/local/wheels.sh .venv/bin/python wheels 3.11
#
# Where the engine's portable wheel is in FOLDER already (deploy/engine/build.sh portable), what it needs is gathered
# too: for the target `engine` of the Dockerfile.
set -eu
python="$1" folder="${2:-$(dirname "$0")/../../wheels}" version="${3:-3.11}"
sources="$(dirname "$0")/../.."
mkdir -p "$folder"
engine=
ls "$folder"/llama_cpp_python-*.whl >/dev/null 2>&1 && engine=engine
wanted="$("$python" -c '
import sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))
extras = project["project"]["optional-dependencies"]
for each in [*project["project"]["dependencies"], *extras["auth"], *extras["fast"], *extras["inference"], *extras["synapse"], *extras["axon"], *extras.get(sys.argv[2], ()), *project["build-system"]["requires"]]:
    if not each.startswith("bakemesh["):
        print(each.partition(";")[0].strip().replace(" ", ""))' "$sources/pyproject.toml" "$engine")"
pip="$python -m pip --quiet --disable-pip-version-check"
# This one has no wheel of its own on the index; it is Python alone, so any interpreter may build it.
$pip wheel --no-deps --wheel-dir "$folder" nkeys
# shellcheck disable=SC2086  # a word a requirement
$pip download --dest "$folder" --find-links "$folder" --only-binary=:all: --implementation cp --python-version "$version" \
    --platform "manylinux2014_$(uname -m)" --platform "manylinux_2_17_$(uname -m)" \
    --platform "manylinux_2_28_$(uname -m)" --platform "linux_$(uname -m)" $wanted
