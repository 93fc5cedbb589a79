#!/bin/bash
# Makes the machine ready for what is asked:
#   tools/setup.sh build|demo|python|docs|fuzz|cubins|cross|tensorflow|lint … [-- COMMAND…]
# What is behind -- runs as soon as the tools are there, beside pip, which waits for the network and for one processor.
# Whether it went well is for whoever comes next and needs what it makes.
# Looks first and installs only what is missing: tools with apt-get, Python packages into .venv. When nothing is missing
# it takes a moment and reaches for no network. Leaves the interpreter to use in build/python.
set -euo pipefail
. "$(dirname "$0")/common.sh"

# The python3 of whoever calls, unless TENON_PYTHON names another. Frameworks that are installed there are used.
user_python=${TENON_PYTHON:-$(command -v python3 || true)}

# ---- tools ---------------------------------------------------------------------------------------------------------

have_c() { echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1; }
have_cxx() { echo '#include <cstddef>' | c++ -x c++ -E - >/dev/null 2>&1; }
have_gxx() { command -v g++ >/dev/null; }
have_ccache() { command -v ccache >/dev/null; }
have_ninja() { command -v ninja >/dev/null; }
have_pkg_config() { command -v pkg-config >/dev/null; }
have_valgrind() { command -v valgrind >/dev/null; }
have_locales() { command -v localedef >/dev/null && [ -f /usr/share/i18n/locales/tr_TR ]; }
have_clang() { command -v clang >/dev/null; }
have_tidy() { command -v clang-tidy >/dev/null; }
# An emulator of the other processor, and its glibc to run programs with.
case $(uname -m) in
x86_64) other=aarch64 other_libc=libc6-arm64-cross ;;
*) other=x86_64 other_libc=libc6-amd64-cross ;;
esac
have_emulator() { command -v qemu-$other >/dev/null; }
have_other_libc() { [ -f /usr/$other-linux-gnu/lib/libc.so.6 ]; }
have_python() { [ -n "$user_python" ] && "$user_python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; }
have_headers() {
    have_python && "$user_python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))'
}
have_venv() { have_python && { [ -x .venv/bin/python ] || "$user_python" -c 'import venv, ensurepip' 2>/dev/null; }; }
have_cmake() {
    local version
    version=$(cmake --version 2>/dev/null | sed -n 's/cmake version //p') || return 1
    [ -n "$version" ] && [ "$(printf '3.24\n%s\n' "$version" | sort -V | head -n 1)" = 3.24 ]
}
# clang comes without its run-time libraries on some distributions: link a fuzzer to see.
have_fuzzer() {
    local out
    have_clang && out=$(mktemp) || return 1
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }' |
        clang -fsanitize=fuzzer,address -x c - -o "$out" >/dev/null 2>&1
    local found=$?
    rm -f "$out"
    return $found
}

apt() {
    local sudo=()
    command -v apt-get >/dev/null || fail "please install the equivalents of these Debian packages, then try again: $*"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || fail "please run as root, then try again: apt-get install $*"
        sudo=(sudo)
        sudo -n true 2>/dev/null || sudo -v || fail "please run as root, then try again: apt-get install $*"
    fi
    sudo+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
    [ -n "${updated:-}" ] || step apt-update "apt-get update" "${sudo[@]}" update
    updated=yes
    step apt-install "apt-get install $*" "${sudo[@]}" install --no-install-recommends "$@"
}

# need FUNCTION PACKAGE…: remembers the packages unless the function finds what they bring.
missing=()
need() { "$1" || missing+=("${@:2}"); }
install_missing() {
    if [ ${#missing[@]} -gt 0 ]; then apt "${missing[@]}"; fi
    missing=()
}

tools_for() {
    case $1 in
    build)
        need have_c gcc libc6-dev
        need have_cmake cmake
        need have_ninja ninja-build
        ;;
    demo | cubins) need have_python python3 ;;
    cross)
        need have_python python3
        need have_emulator qemu-user
        need have_other_libc $other_libc
        ;;
    tensorflow)
        need have_python python3
        need have_locales locales # its names must not depend on the language
        ;;
    python)
        need have_python python3
        need have_gxx g++ # torch.compile looks for this one, and for Python.h
        need have_headers python3-dev
        ;;
    docs)
        need have_ccache ccache # a copy of the project is built
        need have_pkg_config pkg-config # an installation is tried
        need have_valgrind valgrind
        ;;
    fuzz) need have_clang clang ;;
    lint)
        need have_python python3
        need have_clang clang
        need have_tidy clang-tidy
        need have_cxx g++
        ;;
    *) fail "setup.sh knows build, demo, python, docs, fuzz, cubins, cross, tensorflow and lint, not '$1'" ;;
    esac
}

fuzzer() {
    have_fuzzer && return
    local package=libclang-rt-dev
    apt-cache show $package >/dev/null 2>&1 || package=libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev
    apt $package
    have_fuzzer || fail "clang cannot link -fsanitize=fuzzer,address although $package is installed"
}

# ---- Python --------------------------------------------------------------------------------------------------------

# has PYTHON PACKAGE[>=VERSION]…: whether they are installed, without the seconds that importing them takes.
has() {
    [ -n "$1" ] && [ -x "$1" ] && "$1" - "${@:2}" <<'P'
import importlib.util, re, sys
from importlib.metadata import PackageNotFoundError, version

def numbers(text):
    return [int(n) for n in re.findall(r"\d+", text)[:2]]

for want in sys.argv[1:]:
    name, _, least = want.partition(">=")
    try:
        found = importlib.util.find_spec(name) is not None and numbers(version(name)) >= numbers(least)
    except PackageNotFoundError:
        found = False
    if not found:
        sys.exit(1)
P
}

# venv GROUP [FOLDER]: installs tools/requirements-GROUP.txt into .venv, or another folder, once for each state of that
# file. Python compiles what it imports: a quarter of it.
venv() {
    local requirements=tools/requirements-$1.txt folder=${2:-.venv} state
    local stamp=$folder/installed-$1
    if [ ! -x "$folder/bin/python" ]; then
        if ! have_venv; then
            need have_venv python3-venv
            install_missing
        fi
        step venv "python environment in $folder" "$user_python" -m venv "$folder"
    fi
    state=$(sha256sum "$requirements")
    [ "$(cat "$stamp" 2>/dev/null)" = "$state" ] && return
    step "pip-$1" "pip install: $(grep -o '^[a-z_-]*' "$requirements" | tr '\n' ' ')" \
        "$folder/bin/python" -m pip install --disable-pip-version-check --no-compile -q -r "$requirements"
    echo "$state" >"$stamp"
}

# Which interpreter: one with PyTorch where there is one; only `python` may install it.
python_for() {
    local python
    have_python || fail "Tenon needs Python 3.10 or newer; ${user_python:-python3} is older or missing"
    case $1 in
    demo)
        if has "$user_python" "torch>=2.10" numpy; then
            python=$user_python
        elif has "$PWD/.venv/bin/python" numpy; then
            python=$PWD/.venv/bin/python
        elif has "$user_python" numpy; then
            python=$user_python
        else
            venv demo
            python=$PWD/.venv/bin/python
        fi
        ;;
    python)
        if has "$user_python" "torch>=2.10" numpy pytest; then
            python=$user_python
        elif [ -n "${TENON_PYTHON:-}" ]; then
            fail "TENON_PYTHON=$TENON_PYTHON lacks one of: torch >= 2.10, numpy, pytest"
        else
            venv test
            python=$PWD/.venv/bin/python
        fi
        ;;
    esac
    echo "$python" >build/python
}

wanted=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    wanted+=("$1")
    shift
done
[ $# -eq 0 ] || shift
for what in "${wanted[@]}"; do tools_for "$what"; done
install_missing
user_python=${user_python:-$(command -v python3 || true)}
[[ " ${wanted[*]} " != *" fuzz "* ]] || fuzzer
if [ $# -gt 0 ]; then
    "$@" >build/logs/beside.log 2>&1 </dev/null &
    trap wait EXIT # also where pip fails
fi
for what in "${wanted[@]}"; do
    case $what in
    demo | python) python_for "$what" ;;
    cubins) venv cubins ;;
    cross) venv cross ;;
    tensorflow) venv tensorflow .venv/tensorflow ;; # it wants packages of its own versions
    lint) venv lint ;;
    esac
done
[ $# -eq 0 ] || step rest "$*" wait
