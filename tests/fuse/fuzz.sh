#!/bin/sh
# Fuzzes formulas: tests/fuse/fuzz.sh [SECONDS] [BUILD_DIRECTORY]. Needs clang with libFuzzer.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:-60}
build=${2:-$root/build/fuzz}
corpus=$build/corpus-formula
mkdir -p "$corpus"

case $(uname -m) in
x86_64) isas="sse2 avx2 avx512" ;;
aarch64) isas=neon ;;
*) isas=vector ;;
esac
flags="-std=gnu11 -D_GNU_SOURCE -DTENON_VERSION=\"fuzz\" -g -O1 -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=undefined -I$root/include -I$root/src"
objects=
for isa in $isas; do
    case $isa in
    avx2) machine="-mavx2 -mfma -mf16c" ;;
    avx512) machine="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c" ;;
    *) machine= ;;
    esac
    for real in f32 f64; do
        for file in loops pairs; do
            object=$build/${file}_${isa}_$real.o
            # shellcheck disable=SC2086
            "${CC:-clang}" $flags $machine -fwrapv -fno-sanitize=undefined -DTNI_ISA=$isa -DTNI_REAL=$real \
                -DTNI_ISA_$isa -DTNI_REAL_$real -c "$root/src/fuse/${file}_cpu.c" -o "$object"
            objects="$objects $object"
        done
    done
done

cmake -DOUT="$build/headers.c" -DROOT="$root" -P "$root/cmake/text.cmake"
sources=$(ls "$root"/src/fuse/*.c | grep -v '_cpu\.c$')
# shellcheck disable=SC2086
"${CC:-clang}" $flags -fsanitize=fuzzer $sources "$root"/src/core/*.c "$root"/src/cuda/*.c "$root"/src/cpu/isa.c \
    "$root"/src/cpu/rows.c "$root"/tests/fuse/fuzz_formula.c "$build/headers.c" $objects -o "$build/fuzz_formula" -lm -ldl -lpthread

# One seed for each line.
number=0
while IFS= read -r line; do
    number=$((number + 1))
    printf '%s\000\001\061\002\003\061\002\003\002\003\004\061\002\003' "$line" >"$corpus/seed-$number"
done <"$root/tests/fuse/formulas.txt"

cd "$build"
TENON_JIT=0 exec ./fuzz_formula -dict="$root/tests/fuse/formula.dict" -max_len=1024 -timeout=60 -rss_limit_mb=2048 \
    -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 corpus-formula
