# What is built here runs with glibc 2.28, whatever this system has (src/glibc): the library links glibc_library, its
# programs glibc_program. Sanitizers have functions of their own in these places; other C libraries have no such versions.
include(CheckCSourceCompiles)
check_c_source_compiles("
#include <features.h>
#if !__GLIBC_PREREQ(2, 29)
#error old enough as it is
#endif
int main(void) { return 0; }" TENON_HAS_NEWER_GLIBC)
add_library(glibc_library INTERFACE)
add_library(glibc_program INTERFACE)
if(TENON_HAS_NEWER_GLIBC AND NOT TENON_SANITIZE AND NOT isas STREQUAL "vector")
  target_compile_options(tenon_flags INTERFACE -include ${CMAKE_SOURCE_DIR}/src/glibc/glibc.h)
  target_sources(glibc_library INTERFACE ${CMAKE_SOURCE_DIR}/src/glibc/stat.c)
  # Threads and dlopen are there before glibc 2.34; since then both files are empty.
  target_link_options(glibc_library INTERFACE
    "SHELL:-Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--pop-state")
  target_sources(glibc_program INTERFACE ${CMAKE_SOURCE_DIR}/src/glibc/start.c)
  target_link_options(glibc_program INTERFACE -Wl,--wrap=__libc_start_main)
endif()
