#include <cairn/train/data_formats.hpp>
#include <cairn/train/objectives.hpp>

#undef CAIRN_TARGETS  // what else ADMM needs is in other files
#define CAIRN_TARGETS cairn::entered_elsewhere
#include "compiled_admm.hpp"

namespace cairn {
CAIRN_ADMM()
}
