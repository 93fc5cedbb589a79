/* fstat and fstatat: functions of glibc since 2.33, before that macros around others. */
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int fstat(int file, struct stat *about) {
    return (int)syscall(SYS_fstat, file, about);
}

int fstatat(int folder, const char *path, struct stat *about, int flags) {
    return (int)syscall(SYS_newfstatat, folder, path, about, flags);
}
