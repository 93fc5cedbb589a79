/* Rows about memory that is not the call's: nothing is touched before or behind a tensor, and what was prepared for a
 * call is given back with it. */
#include "cli/check/check.h"

const check_row memory_rows[] = {
    {0},
};
