#!/bin/bash
# Configures and builds a preset of CMakePresets.json: tools/build.sh release|debug|asan|tsan|aarch64|x86_64 [TARGET…]
set -euo pipefail
. "$(dirname "$0")/common.sh"
preset=$1
shift
targets=(${@:+--target "$@"})
# TENON_CUBINS=FOLDER: device code that was compiled before (make release-cubins); without it, this build's own.
settings=()
case $preset in release | aarch64 | x86_64)
    settings+=("-DTENON_CUBINS=${TENON_CUBINS:+$(realpath "$TENON_CUBINS")}")
    settings+=("-DTENON_CUDA_ARCHS=${TENON_CUDA_ARCHS:-}")
    settings+=("-DTENON_QUICK=${TENON_QUICK:-OFF}")
    ;;
esac
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
