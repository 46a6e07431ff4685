# cairn::compiled: what include/cairn/core/compiled.hpp lists, compiled once in the build tree of whoever links it, with
# that project's own flags. Optional: it makes files that include Cairn compile in a third of the time. Nothing is built
# where nobody links it. A part, such as cairn_compiled_layers_float, can be linked by itself.

if(TARGET cairn_compiled)  # found twice
    return()
endif()

set(cairn_parts layers_float layers_double linalg networks_float networks_double optimizers_float optimizers_double)
foreach(part ${cairn_parts})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/cairn_compiled/${part}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "#define CAIRN_COMPILED_${part}
#include <cairn/cairn.hpp>
#include <cairn/optim/precondition/kfac.hpp>
")
    add_library(cairn_compiled_${part} STATIC EXCLUDE_FROM_ALL ${file})
    target_link_libraries(cairn_compiled_${part} PUBLIC cairn::cairn)
    target_compile_definitions(cairn_compiled_${part} PUBLIC CAIRN_COMPILED)
    set_target_properties(cairn_compiled_${part} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endforeach()
foreach(precision float double)  # sums of floats are doubles, so layers_float has tensors of both
    target_link_libraries(cairn_compiled_networks_${precision} PUBLIC cairn_compiled_layers_${precision})
    target_link_libraries(cairn_compiled_optimizers_${precision} PUBLIC cairn_compiled_layers_${precision} cairn_compiled_linalg)
endforeach()
target_link_libraries(cairn_compiled_layers_double PUBLIC cairn_compiled_layers_float)
target_link_libraries(cairn_compiled_linalg PUBLIC cairn_compiled_layers_float)

add_library(cairn_compiled INTERFACE)
add_library(cairn::compiled ALIAS cairn_compiled)
list(TRANSFORM cairn_parts PREPEND cairn_compiled_ OUTPUT_VARIABLE cairn_part_targets)
target_link_libraries(cairn_compiled INTERFACE ${cairn_part_targets})
