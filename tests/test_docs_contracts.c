/* Reads contracts, one a line, and prints what the parser says of each that it refuses. tests/test_docs.py builds and
 * feeds it with the examples of docs/contract.md. */
#include <stdio.h>
#include <string.h>

#include "core/contract/contract.h"

int main(void) {
    char line[4096];
    int wrong = 0;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        tni_contract *contract = NULL;
        if (tni_contract_parse(line, &contract) != TN_OK) {
            printf("%s\n", tn_last_error());
            wrong++;
        }
        tni_contract_free(contract);
    }
    return wrong != 0;
}
