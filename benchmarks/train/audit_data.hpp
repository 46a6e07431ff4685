#pragma once
// train --audit-data: what makes figures of the test part better than they will be on new samples (data/audit.hpp).

#include <cairn/train/configuration.hpp>

#include <string>
#include <utility>
#include <vector>

/// Each finding, and whether it is a leak. Reads all samples of the data that the settings name; in a file of its own,
/// where the data formats are.
std::vector<std::pair<bool, std::string>> audit_data(cairn::configuration settings);
