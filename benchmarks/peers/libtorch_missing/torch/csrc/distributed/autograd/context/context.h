// Stands in for a header that Debian's libtorch-dev 1.13 leaves out, though its c10d/reducer.hpp includes it: the two
// names that are used there, and nothing that makes an object. Searched last, so a complete libtorch is not affected.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace torch::distributed::autograd {

class DistAutogradContext {
public:
    using GradCallback = std::function<bool(at::Tensor&)>;
};

using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd
