/* What is built on a new system runs on glibc 2.28, which every wheel of PyTorch needs as well. The compiler reads this
 * file before every other one (CMakeLists.txt): functions that later versions of glibc have in a new edition are taken
 * in their first one. tools/check_glibc.py finds what is missing here. */
#ifndef TNI_GLIBC_H
#define TNI_GLIBC_H

#ifdef __x86_64__
#define TNI_FIRST "GLIBC_2.2.5"
#define TNI_FIRST_DLINFO "GLIBC_2.3.3"
#else
#define TNI_FIRST "GLIBC_2.17"
#define TNI_FIRST_DLINFO TNI_FIRST
#endif

#define TNI_USE(function, instead) __asm__(".symver " #function ", " #instead "@" TNI_FIRST);
#define TNI_USE_FIRST(function) TNI_USE(function, function)
/* 2.29, 2.38: math without the error handling of System V */
TNI_USE_FIRST(exp)
TNI_USE_FIRST(exp2)
TNI_USE_FIRST(fmod)
TNI_USE_FIRST(fmodf)
TNI_USE_FIRST(log)
TNI_USE_FIRST(log2)
TNI_USE_FIRST(pow)
/* 2.32, 2.34: moved into libc.so.6 */
TNI_USE_FIRST(dladdr)
TNI_USE_FIRST(dlclose)
TNI_USE_FIRST(dlerror)
__asm__(".symver dlinfo, dlinfo@" TNI_FIRST_DLINFO);
TNI_USE_FIRST(dlopen)
TNI_USE_FIRST(dlsym)
TNI_USE_FIRST(pthread_create)
TNI_USE_FIRST(pthread_join)
TNI_USE_FIRST(pthread_kill)
TNI_USE_FIRST(pthread_mutex_trylock)
TNI_USE_FIRST(pthread_once)
TNI_USE_FIRST(pthread_sigmask)
/* 2.38: numbers in base 2 */
TNI_USE(__isoc23_fscanf, fscanf)
TNI_USE(__isoc23_sscanf, sscanf)
TNI_USE(__isoc23_strtol, strtol)
TNI_USE(__isoc23_strtoll, strtoll)
#undef TNI_USE_FIRST
#undef TNI_USE

#endif
