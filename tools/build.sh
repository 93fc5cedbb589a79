#!/bin/bash
# Configures and builds presets of CMakePresets.json:
#   tools/build.sh release|debug|asan|tsan|aarch64|x86_64 … [TARGET…]
set -euo pipefail
. "$(dirname "$0")/common.sh"
# ccache, where it is installed, finds what was compiled in another copy of the project, too.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

# TENON_CUBINS=FOLDER: device code that was compiled before (make release-cubins); without it, this build's own.
settings_of() {
    case $1 in release | aarch64 | x86_64) ;; *) return ;; esac
    echo "-DTENON_CUBINS=${TENON_CUBINS:+$(realpath "$TENON_CUBINS")}"
    echo "-DTENON_CUDA_ARCHS=${TENON_CUDA_ARCHS:-}"
    echo "-DTENON_QUICK=${TENON_QUICK:-OFF}"
    [ -z "${TENON_QUICK_CUBINS:-}" ] || echo "-DTENON_QUICK_CUBINS=$TENON_QUICK_CUBINS"
    [ -z "${TENON_WERROR:-}" ] || echo "-DTENON_WERROR=$TENON_WERROR"
}

build() {
    local preset=$1 settings
    mapfile -t settings < <(settings_of "$preset")
    # A folder that was configured with another compiler or at another path is configured anew.
    if ! cmake --preset "$preset" "${settings[@]}" >"build/logs/configure-$preset.log" 2>&1; then
        rm -f build/CMakeCache.txt "build/$preset/CMakeCache.txt"
        step "configure-$preset" "configure ($preset)" cmake --preset "$preset" "${settings[@]}"
    fi
    [ "$preset" != release ] || sed -n 's/^-- CUDA: /  CUDA: /p' build/logs/configure-release.log
    if [ -t 1 ]; then
        cmake --build --preset "$preset" "${targets[@]}"
    else
        step "build-$preset" "build ($preset)" cmake --build --preset "$preset" "${targets[@]}"
    fi
    # What type checkers and editors read of the operator table.
    if [ "$preset" = release ] && command -v python3 >/dev/null && [ -f build/libtenon.so ]; then
        TENON_LIBRARY=build/libtenon.so python3 tools/stubs.py
    fi
}

presets=() targets=()
for name in "$@"; do
    case $name in
    release | debug | asan | tsan | aarch64 | x86_64) presets+=("$name") ;;
    *) targets+=("$name") ;;
    esac
done
targets=(${targets:+--target "${targets[@]}"})
for preset in "${presets[@]}"; do build "$preset"; done
