#!/bin/sh
# Fuzzes the contract language, then formulas: tests/fuzz/run.sh [SECONDS, of each] [BUILD_DIRECTORY]. Needs clang with
# libFuzzer.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:-60}
build=${2:-$root/build/fuzz}
mkdir -p "$build/objects"

# ---- both are linked with one library of what they fuzz ------------------------------------------------------------
case $(uname -m) in
x86_64) isas="sse2 avx2 avx512" ;;
aarch64) isas=neon ;;
*) isas=vector ;;
esac
flags="-std=gnu11 -D_GNU_SOURCE -DTENON_VERSION=\"fuzz\" -g1 -O1 -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=undefined -I$root/include -I$root/src -I$root"

# What to compile, and how: a line each, the longest first.
list() {
    for isa in $isas; do
        case $isa in
        avx2) machine="-mavx2 -mfma -mf16c" ;;
        avx512) machine="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c" ;;
        *) machine= ;;
        esac
        for real in f32 f64; do
            for file in loops pairs; do
                echo "$root/src/fuse/cpu/${file}_cpu.c -o $build/objects/${file}_${isa}_$real.o $machine -fwrapv" \
                    "-fno-sanitize=undefined -DTNI_ISA=$isa -DTNI_REAL=$real -DTNI_ISA_$isa -DTNI_REAL_$real"
            done
        done
    done
    for source in $(find "$root/src/fuse" "$root/src/core" "$root/src/cuda" -name "*.c") "$root/src/cpu/isa.c" \
        "$root/src/cpu/cpu_device.c" "$root/src/cpu/rows.c" "$build/headers.c"; do
        case $source in
        *_cpu.c) ;;
        *) echo "$source -o $build/objects/$(echo "${source#"$root"/}" | tr / _).o" ;;
        esac
    done
}

cmake -DOUT="$build/headers.c" -DROOT="$root" -P "$root/cmake/text.cmake"
rm -f "$build"/objects/* "$build/library.a"
# shellcheck disable=SC2086
list | xargs -P 2 -L 1 "${CC:-clang}" $flags -c
ar rcs "$build/library.a" "$build"/objects/*.o

# ---- fuzz NAME MAIN DICTIONARY LENGTH NUMBERS SEEDS…: one seed for each line of the files, numbers behind it ----------
fuzz() {
    program=$build/fuzz_$1 main=$2 dictionary=$3 length=$4 numbers=$5 corpus=$build/corpus-$1
    shift 5
    # shellcheck disable=SC2086
    "${CC:-clang}" $flags -fsanitize=fuzzer "$main" "$build/library.a" -o "$program" -lm -ldl -lpthread
    mkdir -p "$corpus"
    number=0
    cat "$@" | while IFS= read -r line; do
        number=$((number + 1))
        printf "%s\\000$numbers" "$line" >"$corpus/seed-$number"
    done
    (cd "$build" && TENON_JIT=0 "$program" -dict="$dictionary" -max_len="$length" -timeout=60 -rss_limit_mb=2048 \
        -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 "$corpus")
}

fuzz contract "$root/tests/fuzz/fuzz_contract.c" "$root/tests/fuzz/contract.dict" 2048 '\001\061\002\003\061\002\003' \
    "$root/tests/fuzz/contracts.txt" "$root/tests/fuzz/rules.txt"
fuzz formula "$root/tests/fuse/fuzz_formula.c" "$root/tests/fuse/formula.dict" 1024 \
    '\001\061\002\003\061\002\003\002\003\004\061\002\003' "$root/tests/fuse/formulas.txt"
