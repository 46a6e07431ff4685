#include "audit_data.hpp"

#include <cairn/data/audit.hpp>
#include <cairn/train/data_formats.hpp>
#include <cairn/train/objectives.hpp>

#undef CAIRN_TARGETS  // what else ADMM needs is in other files
#define CAIRN_TARGETS cairn::entered_elsewhere
#include "compiled_admm.hpp"

namespace cairn {
CAIRN_ADMM()
}

std::vector<std::pair<bool, std::string>> audit_data(cairn::configuration settings) {
    std::vector<std::pair<bool, std::string>> all;
    for (const auto& [leak, text] : cairn::audit(cairn::make_data(settings, false, 0))) all.emplace_back(leak, text);
    return all;
}
