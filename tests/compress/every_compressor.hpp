#pragma once
// The compressors that run on every device, in one list: laws of the host and of grid devices go through it. A new one
// is a line here.

#include "course/code/cyclic.hpp"

#include <cairn/compress/bf16.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/compress/natural.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/randomk.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/compress/topk.hpp>

namespace laws {

/// visit(make) for each: make(D{}) is the compressor on D. Messages of all devices are alike, so positions are plain.
template <class Visit>
void for_every_compressor(Visit visit) {
    using namespace cairn;
    visit([]<class D>(D) { return bf16<D>{}; });
    visit([]<class D>(D) { return fp16<D>{}; });
    visit([]<class D>(D) { return bf16_stochastic<D>{}; });
    visit([]<class D>(D) { return fp16_stochastic<D>{}; });
    visit([]<class D>(D) { return natural<D>{}; });
    visit([]<class D>(D) { return sign<D>{}; });
    visit([]<class D>(D) { return qsgd<D>({.levels = 7}); });
    visit([]<class D>(D) { return topk<D, plain_positions>({.ratio = 0.02}); });
    visit([]<class D>(D) { return topk<D, plain_positions>({.ratio = 1, .values = sparse_value::bfloat16}); });
    visit([]<class D>(D) { return randomk<D>({.ratio = 0.02}); });
    visit([]<class D>(D) { return randomk<D>({.ratio = 0.3, .unbiased = true}); });
    visit([]<class D>(D) { return cyclic<D>(7); });
}

}  // namespace laws
