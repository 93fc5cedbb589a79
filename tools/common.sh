# Sourced by the scripts beside it: one line for each step, its output in build/logs, the log's end when it fails.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build/logs

fail() {
    printf 'tenon: %s\n' "$*" >&2
    exit 1
}

# step LOG WHAT COMMAND…: runs the command, prints what it was and how long it took.
step() {
    local log=build/logs/$1.log what=$2 begin=$SECONDS
    shift 2
    printf '  %-64s ' "$what"
    if "$@" >"$log" 2>&1 </dev/null; then
        printf '%4d s\n' $((SECONDS - begin))
    else
        printf 'failed\n\n'
        # of a build: what failed, not what was compiled beside it
        { grep -q '^FAILED:' "$log" && sed -n '/^FAILED:/,$p' "$log" | head -n 60 || tail -n 40 "$log"; } | sed 's/^/    /'
        fail "'$what' failed; all of its output is in $log"
    fi
}
