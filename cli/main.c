/* The program tenon; libtenon.so, which lies beside it, has the rest. */
#include <signal.h>

#include "cli.h"

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_DFL); /* `tenon ops | head` ends quietly, whatever started it */
    return tni_command(argc, argv);
}
