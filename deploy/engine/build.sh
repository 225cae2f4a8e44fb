#!/bin/sh
# Builds llama-cpp-python, the engine of `bakemesh worker`, at the version that pyproject.toml pins.
#
#   build.sh native PYTHON           for the machine it stands on, into PYTHON's environment (about 3 CPU-minutes)
#   build.sh portable PYTHON FOLDER  a wheel with every CPU variant, the right one chosen at run time (10 to 20 CPU-minutes)
#
# What the settings are for, and what happens without them: docs/engine.md.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kind=${1:-} python=${2:-} folder=${3:-}

die() {
    echo "engine: $*" >&2
    exit 1
}

[ -n "$python" ] || die "usage: build.sh native PYTHON | build.sh portable PYTHON FOLDER"
command -v c++ >/dev/null || [ -n "${CXX:-}" ] ||
    die "a C++ compiler is needed (on Debian: apt-get install g++); cmake and ninja are fetched where they are missing"

# With SOURCE_DATE_EPOCH set, ggml leaves out every instruction set: 0.03 of the speed.
unset SOURCE_DATE_EPOCH

version=$(sed -n 's/.*"llama-cpp-python==\([0-9.]*\)".*/\1/p' "$here/../../pyproject.toml")
[ -n "$version" ] || die "pyproject.toml pins no llama-cpp-python==…"

set -- --quiet --disable-pip-version-check \
    "--config-settings=cmake.define.LLAVA_BUILD=OFF" \
    "--config-settings=cmake.define.LLAMA_OPENSSL=OFF" \
    "--config-settings=cmake.define.CMAKE_PROJECT_INCLUDE=$here/lean.cmake"
case $kind in
native)
    "$python" -m pip install "$@" "llama-cpp-python==$version"
    ;;
portable)
    [ -n "$folder" ] || die "usage: build.sh portable PYTHON FOLDER"
    # Not from pip's cache, nor into it: a wheel's settings are no part of its name there.
    # BINDIR puts the variants into the package; without it they land beside it and nothing finds them.
    # Without OpenMP the wheel needs no libgomp on the machine that runs it; at one thread it is as fast.
    "$python" -m pip wheel --no-cache-dir --wheel-dir "$folder" "$@" \
        "--config-settings=cmake.define.GGML_NATIVE=OFF" \
        "--config-settings=cmake.define.GGML_BACKEND_DL=ON" \
        "--config-settings=cmake.define.GGML_CPU_ALL_VARIANTS=ON" \
        "--config-settings=cmake.define.GGML_OPENMP=OFF" \
        "--config-settings=cmake.define.CMAKE_INSTALL_BINDIR=llama_cpp/lib" \
        "llama-cpp-python==$version"
    ;;
*)
    die "usage: build.sh native PYTHON | build.sh portable PYTHON FOLDER"
    ;;
esac
