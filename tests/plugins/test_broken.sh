#!/bin/sh
# tenon check must catch every operator of broken.c and misbehaved.c by the case that is meant for it, and the
# command that it prints must catch it again; operators that are right must pass.
# usage: test_broken.sh TENON BROKEN.so MISBEHAVED.so NAMELESS.so RAGGED.so
tenon=$1 plugin=$2 misbehaved=$3 nameless=$4 ragged=$5 passed=0 failed=0

# A sanitizer ends the process at the first of these bugs, before the checker can speak.
if grep -q -e __asan_init -e __tsan_init "$tenon"; then
    echo "0 passed, 0 failed, 1 skipped: built with a sanitizer"
    exit 0
fi

pass() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    echo "FAIL $*"
}

is_race() { [ "$case" = concurrent ] || [ "$case" = threads ]; }

# operator, case, more options
expect() {
    op=$1 case=$2
    shift 2
    # a race may be won once or twice
    for turn in 1 2 3 4 5; do
        out=$("$tenon" check "$op" --load "$plugin" --case "$case" --quick "$@" 2>&1)
        status=$?
        if [ $status -eq 1 ] || ! is_race; then break; fi
    done
    if [ $status -ne 1 ]; then
        fail "$op is not caught by '$case' (status $status): $out"
        return
    fi
    case $out in
    *"FAIL $op "*" $case,"*) ;;
    *) fail "$op: no line names the case '$case': $out"; return ;;
    esac
    again=$(printf '%s\n' "$out" | grep '^ *tenon check ' | head -n 1 | sed 's/^ *tenon //')
    for turn in 1 2 3 4 5; do
        eval "\"\$tenon\" $again" >/dev/null 2>&1
        status=$?
        if [ $status -eq 1 ] || ! is_race; then break; fi
    done
    if [ $status -ne 1 ]; then
        fail "$op: the command that reproduces does not: tenon $again"
        return
    fi
    pass
}

if "$tenon" check broken_none --load "$plugin" --quick >/dev/null 2>&1; then
    pass
else
    fail "broken_none is right, but does not pass: $("$tenon" check broken_none --load "$plugin" --quick 2>&1)"
fi

if "$tenon" check broken_not --load "$plugin" --quick >/dev/null 2>&1; then
    pass
else
    fail "broken_not, of a type that is neither float nor i32 nor i64, does not pass"
fi

case $("$tenon" check broken_bare --load "$plugin" --quick 2>&1) in
*"no samples to check it by"*) pass ;;
*) fail "broken_bare: nothing says that it has no samples" ;;
esac

case $("$tenon" check broken_domain --load "$plugin" --case grad --quick 2>&1) in
*"outputs are not finite for the numbers drawn"*) pass ;;
*) fail "broken_domain: nothing says why there is no slope" ;;
esac

expect broken_tail values
expect broken_tail odd_rows
expect broken_tail random
expect broken_both values
expect broken_index values
expect broken_little values --dtype f32
expect broken_little large --dtype f32
expect broken_past values
expect broken_aligned misaligned
expect broken_empty empty
expect broken_counter long_dims
expect broken_fork fork
expect broken_static concurrent
expect broken_drift repeat
expect broken_alias alias
expect broken_const values
expect broken_strides transposed
expect broken_strides sliced
expect broken_strides padded
expect broken_strides reversed
expect broken_strides channels_last
expect broken_strides mixed
expect broken_stride0 expanded
expect broken_nan special
expect broken_narrow accumulate --dtype bf16
expect broken_narrow accumulate --dtype f16
expect broken_batch batch --dtype f32
expect broken_pieces threads --dtype f32
expect broken_workspace threads
expect broken_masked masked
expect broken_inplace values
expect broken_grad grad
expect broken_crash values
expect broken_leak leaks

# status, what it says, arguments
says() {
    wanted=$1 text=$2
    shift 2
    out=$("$tenon" "$@" 2>&1)
    status=$?
    case $status:$out in
    "$wanted":*"$text"*) pass ;;
    *) fail "tenon $*: expected status $wanted and '$text', got $status: $out" ;;
    esac
}

# What an output holds that was not written is said as such, not as a number.
says 1 "was never written (4 of 132 elements were not)" check broken_tail --load "$plugin" --case values --dtype f32

# And why, in words that one can act on.
explains() {
    out=$("$tenon" check "$1" --load "$plugin" --quick --case "$2" --dtype "$3" --json | tr -s ' \n' ' ')
    case $out in
    *'"why": "'"$4"*) pass ;;
    *) fail "$1: '$2' does not say '$4': $out" ;;
    esac
}
explains broken_tail values f32 "A missing tail: just the last "
explains broken_past values f32 "Writes out of bounds, just outside of the output."
explains broken_nan special f32 "NaN is dropped"
explains broken_narrow values bf16 "Nearly right: off by "
explains broken_narrow accumulate bf16 "The sum is kept in a 16-bit type"
explains broken_strides sliced f32 "The kernel says TN_STRIDED"
explains broken_grad grad f64 "The gradient is not the slope of the function."
explains broken_drift repeat f32 "A data race: the same call gives different results."

# A kernel that ends its process, or does not come back, costs its case; those behind it run all the same.
plugin=$misbehaved
expect bad_exit values
expect bad_abort values
expect bad_forever values --limit 1 --dtype f32
for op in bad_exit bad_abort; do
    says 1 "FAIL $op f32 fast sliced, sample 2" \
        check $op --load "$plugin" --dtype f32 --quick --case values,sliced,padded
    says 1 "15 passed, 3 failed" check $op --load "$plugin" --dtype f32 --quick --case values,sliced,padded
done
says 1 "ended the process with exit(0); a kernel returns a tn_status" \
    check bad_exit --load "$plugin" --dtype f32 --quick --case values
says 1 "does not come back: stopped after 1 seconds (--limit)" \
    check bad_forever --load "$plugin" --dtype f32 --quick --case values --limit 1
says 1 "given up: 3 cases did not come back" check bad_forever --load "$plugin" --quick --limit 1

expect bad_behind edges
expect bad_before edges
says 1 "reads or writes memory behind the last element of input x" check bad_behind --load "$plugin" --case edges
says 1 "reads or writes memory before the first element of input x" check bad_before --load "$plugin" --case edges
expect bad_leak prepared
says 1 "the kernel has no release" check bad_leak --load "$plugin" --case prepared
expect bad_scratch concurrent
expect bad_static concurrent
expect bad_race threads
expect bad_bits values --dtype f32
says 1 "y loses low bits" check bad_bits --load "$plugin" --case values
says 1 "FAIL bad_huge f32 fast huge" check bad_huge --load "$plugin" --case huge --dtype f32

# What is compared with itself, or has no gradient for some inputs, is remarked on; where nothing is proven, that fails.
says 0 "compared with itself in f64: there is no kernel but 'fast', and no formula" \
    check alone_wide --load "$plugin" --quick --case values
says 1 "kernel 'fast' is the last for the CPU and so the reference, but does not take f64" \
    check alone_narrow --load "$plugin" --quick
says 1 "nothing is proven: kernel 'fast' would be compared with itself" check alone_fixed --load "$plugin" --quick
says 0 "the gradient rule has none for scale" check bad_scaled --load "$plugin" --quick --case grad
says 1 "nameless: kernel 2 of the list has a run function and no name" check --load "$nameless" --only-loaded

# An operator is checked with those of its gradient, unless something picks cases of its own.
says 1 "FAIL bad_half " check bad_whole --load "$plugin" --quick --dtype f32
says 0 " 0 failed" check bad_whole --load "$plugin" --quick --dtype f32 --case values

# Integers that fit together, as the samples ask for them.
for op in sum_segments scatter_rows gather_rows add_at count_below; do
    says 0 " 0 failed" check $op --load "$ragged" --quick --dtype f32,f64
done
says 1 "was never written" check never_empty --load "$ragged" --quick --case values
plugin=$ragged
expect never_empty values

# For programs, and for those who have seen enough.
says 2 "--only-loaded needs operators of your own" check --only-loaded
export TENON_PLUGINS="/nowhere.so:$ragged"
says 0 "tenon: TENON_PLUGINS: /nowhere.so: No such file or directory" ops add_at
says 1 "FAIL never_empty" check --only-loaded --quick --case values --dtype f32
unset TENON_PLUGINS
says 1 '"outcome": "fail", "case": "values", "dtype": "f32", "kernel": "fast"' \
    check never_empty --load "$ragged" --dtype f32 --case values --json
says 0 '"operators": [
  {"name": "add_at", "cases": [], "notes": [], "passed": 6, "failed": 0, "skipped": 0' \
    check add_at --load "$ragged" --dtype f32 --case values --json
out=$( (trap '' PIPE; "$tenon" check never_empty add_at --load "$ragged" --quick) 2>&1 | head -n 1)
case $out in
"FAIL never_empty "*) pass ;;
*) fail "tenon check | head -n 1: $out" ;;
esac

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
