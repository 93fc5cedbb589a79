# The kernels that .cu files export, as a table for tests/cuda/test_kernels.c:
#   cmake -DOUT=… -DROOT=… -DCC=… -P kernels.cmake
# The host's preprocessor is enough to see what TN_KERNEL and TN_ROW_KERNEL make.
cmake_minimum_required(VERSION 3.24)
file(GLOB_RECURSE sources ${ROOT}/src/*.cu)
set(rows "")
set(images "")
set(all "")
foreach(source ${sources})
  get_filename_component(unit ${source} NAME_WE)
  execute_process(COMMAND ${CC} -E -P -x c -D__CUDACC__ -D__CUDA_ARCH__=900 "-D__launch_bounds__(...)=" -I ${ROOT}/src
    ${source} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "extern \"C\" __global__ void +[A-Za-z0-9_]+" kernels "${text}")
  if(NOT kernels)
    message(FATAL_ERROR "${source} exports no kernel")
  endif()
  string(APPEND images "    {\"${unit}\", 90, 'a', UNIT(\"${unit}\")},\n"
    "    {\"${unit}\", 80, ' ', UNIT(\"${unit}\")},\n")
  foreach(kernel ${kernels})
    string(REGEX REPLACE ".* " "" kernel "${kernel}")
    if(kernel IN_LIST all)
      message(FATAL_ERROR "two kernels have the name ${kernel}, one of them in ${source}")
    endif()
    list(APPEND all ${kernel})
    string(APPEND rows "    {\"${unit}\", \"${kernel}\"},\n")
  endforeach()
endforeach()
file(WRITE ${OUT} "/* Made by cmake/kernels.cmake. */
#include \"tests/cuda/kernels.h\"

exported_kernel exported_kernels[] = {
${rows}    {0},
};

/* No code: the driver of the test looks at none. Its place tells which unit was loaded. */
#define UNIT(name) (const unsigned char *)name, (const unsigned char *)name + sizeof name
const tni_image tni_images[] = {
${images}    {0},
};
")
