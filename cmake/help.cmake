# Pages of docs/ for `tenon help TOPIC`, as texts in a C source:  cmake -DOUT=… -DROOT=… -P help.cmake
# cli/topics.c prints them. A row: the topic, the first heading of the page that is taken, the first that is not.
cmake_minimum_required(VERSION 3.24)
include(${CMAKE_CURRENT_LIST_DIR}/define_text.cmake)

set(texts "")
set(rows "")
function(add_topic name from to about)
  file(READ ${ROOT}/docs/${name}.md text)
  string(FIND "${text}" "\n## ${from}\n" begin)
  string(FIND "${text}" "\n## ${to}\n" end)
  if(begin LESS 0 OR end LESS begin)
    message(FATAL_ERROR "docs/${name}.md: `tenon help ${name}` goes from '## ${from}' to '## ${to}', not found there")
  endif()
  math(EXPR begin "${begin} + 1")
  math(EXPR length "${end} + 1 - ${begin}")
  string(SUBSTRING "${text}" ${begin} ${length} text)
  define_text(definition ${name} "${text}")
  set(texts "${texts}static ${definition}" PARENT_SCOPE)
  set(rows "${rows}    {\"${name}\", \"${about}\", ${name}},\n" PARENT_SCOPE)
endfunction()
add_topic(formulas "The language" "From the command line" "the language of formulas")
add_topic(contract "The form" "What a kernel sees" "the language of contracts")

file(WRITE ${OUT} "#include \"cli/cli.h\"

${texts}
const topic topics[] = {
${rows}    {0},
};
")
