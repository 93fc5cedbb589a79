/* How a program starts. Since glibc 2.34 the first thing that it does, __libc_start_main, has a new edition, which runs
 * the program's constructors; the first edition was told how to. The linker's --wrap leads to here. */
#include <stddef.h>

typedef int program(int argc, char **argv, char **environment);
typedef void constructor(int argc, char **argv, char **environment);

extern constructor *__init_array_start[], *__init_array_end[];

int first_start(program *main, int argc, char **argv, constructor *init, void (*end)(void), void (*unload)(void),
                void *stack);
__asm__(".symver first_start, __libc_start_main@" TNI_FIRST);

static void run_constructors(int argc, char **argv, char **environment) {
    for (constructor **one = __init_array_start; one < __init_array_end; one++) (*one)(argc, argv, environment);
}

/* init is NULL where the system that this was built on is newer. */
int __wrap___libc_start_main(program *main, int argc, char **argv, constructor *init, void (*end)(void),
                             void (*unload)(void), void *stack);
int __wrap___libc_start_main(program *main, int argc, char **argv, constructor *init, void (*end)(void),
                             void (*unload)(void), void *stack) {
    return first_start(main, argc, argv, init ? init : run_constructors, end, unload, stack);
}
