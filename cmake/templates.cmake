# Files of cli/new/templates as texts in a C source:  cmake -DOUT=… -DROOT=… -P templates.cmake
# `tenon new` writes them, with the name of the new operator in place of @name@ (cli/new/new.h).
cmake_minimum_required(VERSION 3.24)
include(${CMAKE_CURRENT_LIST_DIR}/define_text.cmake)

file(GLOB files ${ROOT}/cli/new/templates/*.in)
set(texts "")
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  string(REGEX REPLACE "\\.in$" "" name "${name}")
  string(MAKE_C_IDENTIFIER ${name} id)
  file(READ ${file} text)
  define_text(definition ${id} "${text}")
  string(APPEND texts "static ${definition}")
  string(APPEND rows "    {\"${name}\", ${id}},\n")
endforeach()

file(WRITE ${OUT} "#include \"cli/new/new.h\"

${texts}
const template_file template_files[] = {
${rows}    {0},
};
")
