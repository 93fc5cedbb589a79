# Files as texts in a C source, and tenon/device.cuh:  cmake -DOUT=… -DDEVICE=… -DROOT=… -P text.cmake
# The texts are what the library gives to compilers on the user's machine, besides what it writes itself.
cmake_minimum_required(VERSION 3.24)

include(${CMAKE_CURRENT_LIST_DIR}/define_text.cmake)

# For the host's compiler: headers, which lie in one folder there, so their includes lose the folders.
file(GLOB files ${ROOT}/src/cpu/vec/vec*.h)
list(APPEND files ${ROOT}/src/cpu/vec/variants.h ${ROOT}/src/fuse/cpu/functions.h
     ${ROOT}/src/fuse/cpu/trigonometry.h ${ROOT}/src/fuse/cpu/loop.h)
set(texts "")
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER ${name} id)
  file(READ ${file} text)
  string(REGEX REPLACE "(#include \")[^\"\n]*/" "\\1" text "${text}")
  define_text(definition ${id} "${text}")
  string(APPEND texts "static ${definition}")
  string(APPEND rows "    {\"${name}\", ${id}},\n")
endforeach()

# For NVRTC: a file behind what it includes, each file once, as one text. Includes stand at the top of a file.
function(append_flat name)
  get_property(seen GLOBAL PROPERTY flattened)
  if(name IN_LIST seen)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY flattened ${name})
  file(READ ${ROOT}/src/cuda/device/${name} text)
  string(REGEX MATCHALL "#include \"[^\"\n]*\"" includes "${text}")
  foreach(include ${includes})
    string(REGEX REPLACE ".*\"(.*)\"" "\\1" include "${include}")
    append_flat(${include})
  endforeach()
  string(REGEX REPLACE "#(include \"[^\"\n]*\"|pragma once)\n" "" text "${text}")
  set_property(GLOBAL APPEND_STRING PROPERTY flat_text "${text}")
endfunction()
function(flatten result name)
  set_property(GLOBAL PROPERTY flattened)
  set_property(GLOBAL PROPERTY flat_text)
  append_flat(${name})
  get_property(text GLOBAL PROPERTY flat_text)
  set(${result} "${text}" PARENT_SCOPE)
endfunction()
flatten(text formula.cuh)
define_text(prelude tni_cuda_prelude "${text}")

# What authors include begins with author.cuh's own words.
flatten(text author.cuh)
file(READ ${ROOT}/src/cuda/device/author.cuh author)
string(REGEX MATCH "^/\\*.*#pragma once\n" opening "${author}")
string(REGEX REPLACE "\\*/.*" "*/\n" opening "${opening}")
string(REPLACE "${opening}" "" text "${text}")
set(text "${opening}#pragma once\n\n${text}")
file(WRITE ${DEVICE} "${text}")
define_text(device tni_device_text "${text}")

file(WRITE ${OUT} "#include \"fuse/cpu/compile_c.h\"
#include \"fuse/cuda/gpu.h\"

${texts}
const tni_c_file tni_c_files[] = {
${rows}    {0},
};

${prelude}
${device}")
