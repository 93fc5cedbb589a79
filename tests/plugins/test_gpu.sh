#!/bin/sh
# The commands on a GPU, without one: the driver is made up (fake_cuda.c), its memory is the host's, and the operators of
# gpu_ops.c run in it. What is right passes; what is broken is caught by the case that is meant for it.
# usage: test_gpu.sh TENON FAKE_CUDA.so GPU.so AUTHOR.so
tenon=$1 fake=$2 plugin=$3 author=$4 passed=0 failed=0

# A sanitizer must be the first library of a process; the made-up driver would come before it.
if grep -q -e __asan_init -e __tsan_init "$tenon"; then
    echo "0 passed, 0 failed, 1 skipped: built with a sanitizer"
    exit 0
fi

pass() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    echo "FAIL $*"
}
gpu() { LD_PRELOAD=$fake "$tenon" "$@" 2>&1; }

# A compute-sanitizer that is installed here knows nothing of this GPU.
export TENON_CHECK_CHILD=1

# operator, case, what the message says
expect() {
    out=$(gpu check "$1" --load "$plugin" --device cuda --quick --case "$2")
    status=$?
    case $status:$out in
    1:*"FAIL $1 "*" $2,"*"$3"*"--device cuda:0"*) pass ;;
    *) fail "$1 is not caught by '$2' (status $status): $out" ;;
    esac
}

# status, what it says, arguments
says() {
    wanted=$1 text=$2
    shift 2
    out=$(gpu "$@")
    status=$?
    case $status:$out in
    "$wanted":*"$text"*) pass ;;
    *) fail "tenon $*: expected status $wanted and '$text', got $status: $out" ;;
    esac
}

# Kernels of the made-up driver do nothing: no graphs, no illegal access, no copies.
says 0 " 0 failed" check gpu_right --load "$plugin" --device cuda --quick --skip graph,sticky,alias,overlap
says 0 " 0 failed" check gpu_right --load "$plugin" --device cuda:1 --case values,context,devices,fork
expect gpu_past values "memory around output y was written to"
expect gpu_far values "outside of every tensor"
expect gpu_dense transposed "is"
expect gpu_drift repeat "is"
expect gpu_leak leaks "GPU memory"
expect gpu_dirty workspace "full of NaN"

# And why, in words. Lines are wrapped: the sentences are looked for in one.
explains() {
    out=$(gpu check "$1" --load "$plugin" --device cuda --quick --dtype "${4:-f32}" --case "$2" --json | tr -s ' \n' ' ')
    case $out in
    *'"why": "'"$3"*) pass ;;
    *) fail "$1: '$2' does not say '$3': $out" ;;
    esac
}
explains gpu_past values "Writes out of bounds, just outside of the output."
explains gpu_far values "Writes out of bounds, far outside of its tensors."
explains gpu_reads values "Reads out of bounds: the result changes with what lies outside of x."
explains gpu_reads values "Reads out of bounds: the result changes with what lies outside of x." f16
explains gpu_tail values "A missing tail: just the last 3 of 15 elements were never written."
explains gpu_adds values "The result depends on what the output held before the call."
explains gpu_dense transposed "The kernel says TN_STRIDED"

# compute-sanitizer, made up: it says what the real one does, and runs what it is told to.
tools=$(mktemp -d)
cat >"$tools/compute-sanitizer" <<'END'
#!/bin/sh
case $TENON_CHECK_CHILD:$* in
"sanitize:--tool memcheck "*"/tenon check gpu_reads "*"--case values"*" --in-process") ;;
*) exit 0 ;;
esac
echo "========= COMPUTE-SANITIZER"
echo "========= Invalid __global__ read of size 4 bytes"
echo "=========     at gpu_reads(const float *, float *)+0x70 in gpu_ops.cu:12"
echo "=========     by thread (15,0,0) in block (0,0,0)"
echo "=========     Saved host backtrace up to driver entry point at kernel launch time"
echo "========= ERROR SUMMARY: 1 error"
END
chmod +x "$tools/compute-sanitizer"
PATH=$tools:$PATH
unset TENON_CHECK_CHILD
found="compute-sanitizer (memcheck): Invalid __global__ read of size 4 bytes at gpu_reads(const float *, float *)+0x70 in"
found="$found gpu_ops.cu:12 by thread (15,0,0) in block (0,0,0)"
says_in_one_line() {
    out=$(gpu check "$@" | tr -s ' \n' ' ')
    case $out in
    *"$found"*) pass ;;
    *) fail "tenon check $*: does not say what compute-sanitizer found: $out" ;;
    esac
}
says_in_one_line gpu_reads --load "$plugin" --device cuda --quick --case values
says_in_one_line gpu_reads --load "$plugin" --device cuda --quick --case sanitize --sanitize
says 0 " 0 failed" check gpu_right --load "$plugin" --device cuda --quick --case sanitize,values --sanitize
export TENON_CHECK_CHILD=1
rm -r "$tools"

says 2 "there is no cuda:9; this process sees 2 GPUs" check --device cuda:9
says 2 "there is no device 'gpu'" bench softmax --device gpu
says 2 "tenon fuse: there is no device 'gpu'" fuse x --device gpu
says 0 "Fake GPU 1" devices
says 0 '"device": "cuda:1"' devices --json
says 0 "gpu_right" bench gpu_right --load "$plugin" --device cuda --shape "s=[64, 100]" --ms 1
says 0 '"percent_of_copy"' bench gpu_right --load "$plugin" --device cuda --shape "s=[64, 100]" --ms 1 --json

# A plugin that launches by tenon/cuda.h, from an image of its own. Other cases have tensors with gaps, which are copied
# by a kernel that a GPU has and the made-up one does not run.
for device in cuda cuda:1; do
    says 0 " 0 failed" check author_scale --load "$author" --device $device --kernel cuda \
        --case values,special,repeat,threads,leaks,devices,fork
done

# Memory that another process takes meanwhile is no leak.
export FAKE_CUDA=neighbour
says 0 " 0 failed" check gpu_right --load "$plugin" --device cuda --quick --case leaks
expect gpu_leak leaks "GPU memory"

# A driver that is too old costs one line; the CPU goes on.
export FAKE_CUDA=old
old="the NVIDIA driver is for CUDA 11.8, Tenon needs CUDA 12.0 (driver 525) or newer"
says 0 "no GPU: $old; operators run on the CPU" devices
says 0 "\"why_not\": \"$old\"" devices --json
says 2 "$old" check softmax --device cuda
says 0 " 0 failed" check softmax --quick --case values

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
