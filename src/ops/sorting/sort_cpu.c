/* sort on the CPU: short rows by insertion and merging, others by their keys' digits, from the lowest on. Threads share
 * out the rows, and the parts of rows that are long. */
#include "records.h"
#include "sort_rows.h"

tn_status TNI_CPU(sort)(const tn_call *call, void *state) {
    (void)state;
    const tni_sorting o = tni_sorting_of_sort(call);
    sort_rows(call, &o);
    return TN_OK;
}
