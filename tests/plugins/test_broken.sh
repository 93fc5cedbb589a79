#!/bin/sh
# tenon check must catch every operator of broken.c by the case that is meant for it, and the command that it prints must
# catch it again; the operator that is right must pass.
# usage: test_broken.sh TENON BROKEN.so
tenon=$1 plugin=$2 passed=0 failed=0

# A sanitizer ends the process at the first of these bugs, before the checker can speak.
if grep -q -e __asan_init -e __tsan_init "$tenon"; then
    echo "0 passed, 0 failed, 1 skipped: built with a sanitizer"
    exit 0
fi

fail() {
    failed=$((failed + 1))
    echo "FAIL $*"
}

# operator, case, more options
expect() {
    op=$1 case=$2
    shift 2
    out=$("$tenon" check "$op" --load "$plugin" --case "$case" --quick "$@" 2>&1)
    status=$?
    if [ $status -ne 1 ]; then
        fail "$op is not caught by '$case' (status $status): $out"
        return
    fi
    case $out in
    *"FAIL $op "*" $case,"*) ;;
    *) fail "$op: no line names the case '$case': $out"; return ;;
    esac
    again=$(printf '%s\n' "$out" | grep '^ *tenon check ' | head -n 1 | sed 's/^ *tenon //')
    eval "\"\$tenon\" $again" >/dev/null 2>&1
    if [ $? -ne 1 ]; then
        fail "$op: the command that reproduces does not: tenon $again"
        return
    fi
    passed=$((passed + 1))
}

if "$tenon" check broken_none --load "$plugin" --quick >/dev/null 2>&1; then
    passed=$((passed + 1))
else
    fail "broken_none is right, but does not pass: $("$tenon" check broken_none --load "$plugin" --quick 2>&1)"
fi

if "$tenon" check broken_not --load "$plugin" --quick >/dev/null 2>&1; then
    passed=$((passed + 1))
else
    fail "broken_not, of a type that is neither float nor i32 nor i64, does not pass"
fi

case $("$tenon" check broken_bare --load "$plugin" --quick 2>&1) in
*"no samples to check it by"*) passed=$((passed + 1)) ;;
*) fail "broken_bare: nothing says that it has no samples" ;;
esac

case $("$tenon" check broken_domain --load "$plugin" --case grad --quick 2>&1) in
*"outputs are not finite for the numbers drawn"*) passed=$((passed + 1)) ;;
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

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
