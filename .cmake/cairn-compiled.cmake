# cairn::compiled: what include/cairn/core/compiled.hpp lists, compiled once in the build tree of whoever links it, with
# that project's own flags. Optional: it makes files that include Cairn compile in a third of the time. Nothing is built
# where nobody links it.

if(TARGET cairn_compiled)  # found twice
    return()
endif()

set(cairn_parts layers_float layers_double networks optimizers)
set(cairn_part_files "")
foreach(part ${cairn_parts})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/cairn_compiled/${part}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "#define CAIRN_COMPILED_${part}
#include <cairn/cairn.hpp>
#include <cairn/optim/precondition/kfac.hpp>
")
    list(APPEND cairn_part_files ${file})
endforeach()
add_library(cairn_compiled STATIC EXCLUDE_FROM_ALL ${cairn_part_files})
add_library(cairn::compiled ALIAS cairn_compiled)
target_link_libraries(cairn_compiled PUBLIC cairn::cairn)
target_compile_definitions(cairn_compiled PUBLIC CAIRN_COMPILED)
set_target_properties(cairn_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
