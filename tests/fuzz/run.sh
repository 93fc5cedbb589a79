#!/bin/sh
# Fuzzes the contract language, then formulas: tests/fuzz/run.sh BUILD_DIRECTORY SECONDS (of each). Builds nothing:
# `cmake --preset asan && cmake --build --preset fuzz` makes the programs in build/asan.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
seconds=$2

# fuzz NAME DICTIONARY LENGTH NUMBERS SEEDS…: each line of the files is a seed, with the numbers behind it.
fuzz() {
    name=$1 dictionary=$2 length=$3 numbers=$4 corpus=$build/corpus-$1
    shift 4
    mkdir -p "$corpus"
    number=0
    cat "$@" | while IFS= read -r line; do
        number=$((number + 1))
        printf "%s\\000$numbers" "$line" >"$corpus/seed-$number"
    done
    (cd "$build" && TENON_JIT=0 "./fuzz_$name" -dict="$dictionary" -max_len="$length" -timeout=60 -rss_limit_mb=2048 \
        -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 "$corpus")
}

fuzz contract "$root/tests/fuzz/contract.dict" 2048 '\001\061\002\003\061\002\003' \
    "$root/tests/fuzz/contracts.txt" "$root/tests/fuzz/rules.txt"
fuzz formula "$root/tests/fuse/formula.dict" 1024 '\001\061\002\003\061\002\003\002\003\004\061\002\003' \
    "$root/tests/fuse/formulas.txt"
