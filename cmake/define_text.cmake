# define_text(DEFINITION NAME TEXT): `const char NAME[] = {…};` of a text. OUT.part is written on the way.
function(define_text definition name text)
  file(WRITE ${OUT}.part "${text}")
  file(READ ${OUT}.part hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  set(${definition} "const char ${name}[] = {${bytes}0};\n" PARENT_SCOPE)
endfunction()
