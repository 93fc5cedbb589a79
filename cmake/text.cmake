# Files as texts in a C source:  cmake -DOUT=… -DROOT=… -P text.cmake
# They are what src/fuse gives to the host's compiler, besides what it writes itself.
# There they lie in one folder, so their includes lose the folders.
file(GLOB files ${ROOT}/src/cpu/vec/vec*.h)
list(APPEND files ${ROOT}/src/cpu/vec/variants.h ${ROOT}/src/fuse/cpu/functions.h ${ROOT}/src/fuse/cpu/loop.h)
set(texts "")
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER ${name} id)
  file(READ ${file} text)
  string(REGEX REPLACE "(#include \")[^\"\n]*/" "\\1" text "${text}")
  file(WRITE ${OUT}.part "${text}")
  file(READ ${OUT}.part hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND texts "static const char ${id}[] = {${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", ${id}},\n")
endforeach()
file(WRITE ${OUT} "#include \"fuse/cpu/compile_c.h\"\n\n${texts}\nconst tni_c_file tni_c_files[] = {\n${rows}    {0},\n};\n")
