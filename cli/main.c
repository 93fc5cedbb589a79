/* The program tenon; libtenon.so, which lies beside it, has the rest. */
#include "cli.h"

int main(int argc, char **argv) {
    return tni_command(argc, argv);
}
