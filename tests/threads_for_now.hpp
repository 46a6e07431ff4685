#pragma once

#include <cairn/core/parallel.hpp>

namespace cairn::test {

using cairn::threads_for_now;

}  // namespace cairn::test
