# Toolchain for a machine with another processor: PyPI's ziglang is clang with the headers and the symbols of every glibc.
#   cmake --preset aarch64      (or x86_64)   after `cmake --build --preset release --target tenon_generate`
# What it makes runs with glibc 2.28 (tools/check_glibc.py sees to that) and on every processor of the architecture.
set(TENON_MACHINE "" CACHE STRING "Architecture to build for: x86_64 or aarch64")
file(GLOB zig_folders ${CMAKE_CURRENT_LIST_DIR}/../.venv/lib/python3*/site-packages/ziglang)
find_program(TENON_ZIG zig HINTS ${zig_folders})
if(NOT TENON_ZIG)
  message(FATAL_ERROR "there is no zig: tools/setup.sh cross installs it")
endif()
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TENON_MACHINE TENON_ZIG)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${TENON_MACHINE})
set(CMAKE_C_COMPILER ${TENON_ZIG} cc)
set(CMAKE_C_COMPILER_TARGET ${TENON_MACHINE}-linux-gnu.2.28)
# This system's strip may not know the other processor.
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -s)
