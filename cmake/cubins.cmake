# Device code: every .cu of src is compiled for each of TENON_CUDA_ARCHS and embedded as data.
#   TENON_CUDA_ARCHS   e.g. "90a;100;ptx75": sm_90a and sm_100, and PTX for GPUs from sm_75 on that are newer than both;
#                      empty: for the GPUs of this machine, and where there are none for 90a; "none": nothing
#   TENON_CUBINS       a folder of files UNIT.ARCH.cubin, packed or not (tools/release_cubins.py makes it): used as they
#                      are, no nvcc
# A build with neither is for the CPU alone, and says so.
set(TENON_CUDA_ARCHS "" CACHE STRING "GPU architectures to compile for")
set(TENON_CUBINS "" CACHE PATH "Folder with device code compiled before")
option(TENON_QUICK_CUBINS "Device code that is compiled in a tenth of the time and runs slowly, for tests without a GPU" OFF)

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS src/*.cu)
file(GLOB_RECURSE cuda_headers CONFIGURE_DEPENDS src/*.cuh)
find_program(TENON_NVCC nvcc PATHS /usr/local/cuda/bin)

set(nvcc_optimise -O3)
if(TENON_QUICK_CUBINS AND TENON_NVCC)
  execute_process(COMMAND ${TENON_NVCC} --help OUTPUT_VARIABLE nvcc_help ERROR_QUIET)
  if(nvcc_help MATCHES "--Ofast-compile") # CUDA 13
    set(nvcc_optimise --Ofast-compile=max)
  endif()
endif()

set(archs ${TENON_CUDA_ARCHS})
if(NOT archs AND TENON_NVCC)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND found MATCHES "[0-9]")
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" found "${found}")
    list(TRANSFORM found REPLACE "\\." "")
    list(TRANSFORM found REPLACE "^90$" "90a")
    list(REMOVE_DUPLICATES found)
    set(archs ${found})
  else()
    set(archs 90a)
  endif()
endif()

set(images)     # unit|arch|kind|file
if(TENON_CUBINS)
  file(GLOB files CONFIGURE_DEPENDS ${TENON_CUBINS}/*.cubin ${TENON_CUBINS}/*.ptx ${TENON_CUBINS}/*.xz)
  foreach(file ${files})
    get_filename_component(name ${file} NAME)
    if(NOT name MATCHES "^([a-z0-9_]+)\\.(ptx)?([0-9]+)(a?)\\.(cubin|ptx)(\\.xz)?$")
      message(FATAL_ERROR "${file}: expected UNIT.ARCH.cubin or UNIT.ptxARCH.ptx")
    endif()
    set(kind " ")
    if(CMAKE_MATCH_2)
      set(kind "p")
    elseif(CMAKE_MATCH_4)
      set(kind "a")
    endif()
    list(APPEND images "${CMAKE_MATCH_1}|${CMAKE_MATCH_3}|${kind}|${file}")
  endforeach()
  message(STATUS "CUDA: device code from ${TENON_CUBINS}")
elseif(archs STREQUAL "none")
  message(STATUS "CUDA: none asked for: this build is for the CPU alone")
elseif(TENON_NVCC)
  foreach(source ${cuda_sources})
    get_filename_component(unit ${source} NAME_WE)
    foreach(arch ${archs})
      if(arch MATCHES "^ptx([0-9]+)$")
        set(number ${CMAKE_MATCH_1})
        set(kind "p")
        set(output ${CMAKE_BINARY_DIR}/cubins/${unit}.${arch}.ptx)
        set(target -ptx -arch=compute_${number})
      elseif(arch MATCHES "^([0-9]+)(a?)$")
        set(number ${CMAKE_MATCH_1})
        set(kind " ")
        if(CMAKE_MATCH_2)
          set(kind "a")
        endif()
        set(output ${CMAKE_BINARY_DIR}/cubins/${unit}.${arch}.cubin)
        set(target -cubin -gencode=arch=compute_${arch},code=sm_${arch})
      else()
        message(FATAL_ERROR "TENON_CUDA_ARCHS: '${arch}' is neither like 90, 90a nor like ptx75")
      endif()
      add_custom_command(OUTPUT ${output}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cubins
        COMMAND ${TENON_NVCC} ${target} -std=c++17 ${nvcc_optimise} --fmad=true -I ${CMAKE_SOURCE_DIR}/src -o ${output} ${source}
        DEPENDS ${source} ${cuda_headers}
        COMMENT "nvcc ${unit}.cu for ${arch}")
      list(APPEND images "${unit}|${number}|${kind}|${output}")
    endforeach()
  endforeach()
  message(STATUS "CUDA: ${TENON_NVCC} for ${archs}, ${nvcc_optimise}")
else()
  message(STATUS "CUDA: no nvcc and no TENON_CUBINS: this build is for the CPU alone")
endif()

# One C file that embeds them all: .incbin needs no tool but the assembler.
set(declarations "")
set(rows "")
set(image_files "")
foreach(image ${images})
  string(REPLACE "|" ";" fields "${image}")
  list(GET fields 0 unit)
  list(GET fields 1 number)
  list(GET fields 2 kind)
  list(GET fields 3 file)
  string(MAKE_C_IDENTIFIER "tni_image_${unit}_${number}_${kind}" symbol)
  list(APPEND image_files ${file})
  string(APPEND declarations "EMBED(${symbol}, \"${file}\")\n")
  string(APPEND rows "    {\"${unit}\", ${number}, '${kind}', ${symbol}, ${symbol}_end},\n")
endforeach()
set(TENON_IMAGES ${CMAKE_BINARY_DIR}/generated/images.c)
file(CONFIGURE OUTPUT ${TENON_IMAGES} @ONLY CONTENT
"/* The device code, embedded; made by cmake/cubins.cmake. */
#include \"cuda/driver/cuda.h\"

#define EMBED(symbol, file)                                                                                           \\
    __asm__(\".section .rodata\\n.balign 64\\n.hidden \" #symbol \"\\n.hidden \" #symbol \"_end\\n\"                          \\
            \".globl \" #symbol \"\\n.globl \" #symbol \"_end\\n\" #symbol \":\\n.incbin \\\"\" file \"\\\"\\n\" #symbol          \\
            \"_end:\\n.byte 0\\n.previous\\n\");                                                                         \\
    extern const unsigned char symbol[], symbol##_end[];
@declarations@
/* weak: a test has others */
__attribute__((weak)) const tni_image tni_images[] = {
@rows@    {0},
};
")
set_source_files_properties(${TENON_IMAGES} PROPERTIES OBJECT_DEPENDS "${image_files}")

# The names of all kernels, for a test.
set(TENON_KERNELS ${CMAKE_BINARY_DIR}/generated/kernels.c)
add_custom_command(OUTPUT ${TENON_KERNELS}
  COMMAND ${CMAKE_COMMAND} -DOUT=${TENON_KERNELS} -DROOT=${CMAKE_SOURCE_DIR} -DCC=${CMAKE_C_COMPILER}
    -P ${CMAKE_SOURCE_DIR}/cmake/kernels.cmake
  DEPENDS ${cuda_sources} ${cuda_headers} cmake/kernels.cmake COMMENT "Names of kernels")
