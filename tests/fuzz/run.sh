#!/bin/sh
# Fuzzes the contract language: tests/fuzz/run.sh [SECONDS] [BUILD_DIRECTORY]. Needs clang with libFuzzer.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:-60}
build=${2:-$root/build/fuzz}
corpus=$build/corpus
mkdir -p "$corpus"

"${CC:-clang}" -std=gnu11 -D_GNU_SOURCE '-DTENON_VERSION="fuzz"' -g -O1 -fsanitize=fuzzer,address,undefined \
    -fno-sanitize-recover=undefined -I"$root/include" -I"$root/src" \
    "$root"/src/core/*.c "$root"/src/cuda/*.c "$root"/src/cpu/isa.c "$root"/src/cpu/rows.c \
    "$root"/tests/fuzz/fuzz_contract.c \
    -o "$build/fuzz_contract" -lm -ldl -lpthread

# One seed for each line.
number=0
cat "$root/tests/fuzz/contracts.txt" "$root/tests/fuzz/rules.txt" | while IFS= read -r line; do
    number=$((number + 1))
    printf '%s\000\001\061\002\003\061\002\003' "$line" >"$corpus/seed-$number"
done

cd "$build"
exec ./fuzz_contract -dict="$root/tests/fuzz/contract.dict" -max_len=2048 -timeout=60 -rss_limit_mb=2048 \
    -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 corpus
