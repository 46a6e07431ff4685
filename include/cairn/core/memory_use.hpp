#pragma once
// Categories of memory, their live and peak bytes, and limits.

#include <cairn/core/environment.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <array>
#include <limits>

namespace cairn {

/// Purpose of a block of memory.
enum class memory_category {
    parameters,
    gradients,
    optimizer,
    activations,
    saved,  // activations that forward leaves for backward, as long as saved_tensors holds them
    workspace,
    communication,
    data,
    staging  // copies of a state that wait for the disk
};

inline constexpr std::array<const char*, 9> memory_category_names{
    "parameters", "gradients", "optimizer", "activations", "saved", "workspace", "communication", "data", "staging"};

/// Live and highest bytes so far, of one category or of all.
struct memory_use {
    index_t live = 0;
    index_t peak = 0;
    void grow(index_t bytes) { peak = std::max(peak, live += bytes); }
    void shrink(index_t bytes) { live -= bytes; }
};

/// The limit in bytes that the environment variable `name` sets for a pool, else `otherwise`.
inline index_t memory_limit_of_environment(const char* name, index_t otherwise) {
    return environment_number(name, otherwise, index_t{1}, std::numeric_limits<index_t>::max(),
                              "bytes, a whole number of at least 1 without unit or exponent, such as 4000000000");
}

/// A block that was taken from a pool, or given back.
struct memory_request {
    const void* block;
    index_t bytes;
    memory_category use;
    bool taken;
};

}  // namespace cairn
