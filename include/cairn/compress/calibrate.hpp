#pragma once
// What a compressor costs on this machine, as the governor wants to know it before the first step.

#include <cairn/compress/compressor.hpp>
#include <cairn/compress/governor.hpp>
#include <cairn/core/clock.hpp>

#include <memory>
#include <string>
#include <vector>

namespace cairn {

/// A candidate for options_for: encode, and decode_add of `messages` messages (the ranks' in an all-gather, one where sums ride
/// an all-reduce), are timed on n normal values, the fastest of `repeats`. make() → a Compressor. Takes some milliseconds;
/// times differ between ranks: take the maximum over them before they enter a governor.
template <class Make>
reduction_candidate calibrate(Make make, std::vector<std::string> algorithms, int messages, index n = index{1} << 20,
                              int repeats = 5) {
    require(messages >= 1 && n >= 1 && repeats >= 1, "calibrate: ", messages, " messages of ", n, " values, ", repeats,
            " times");
    auto c = make();
    tensor<float> values({n}, category::workspace), into = tensor<float>::zeros({n}, category::workspace);
    const random_stream random{1, stream_of("calibrate"), 0};
    parallel_for(n, compress_grain, [&](index begin, index end) {
        for (index i = begin; i < end; ++i)
            values[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    });
    message m;
    double encode = std::numeric_limits<double>::infinity(), decode = encode;
    for (int k = 0; k <= repeats; ++k) {  // the first one touches memory and does not count
        const encode_step at{.step = k};
        stopwatch watch;
        c.encode(values.span(), m, at);
        const double encoded = watch.restart();
        for (int r = 0; r < messages; ++r) c.decode_add(std::as_const(m).bytes(), into.span(), at, 0.5f);
        const double decoded = watch.restart();
        if (k > 0) {
            encode = std::min(encode, encoded);
            decode = std::min(decode, decoded);
        }
    }
    const double per_value = static_cast<double>(m.size()) / static_cast<double>(n);
    reduction_candidate result{
        c.name(), {}, encode / static_cast<double>(n), decode / static_cast<double>(n), std::move(algorithms)};
    if (c.contract(n).fixed_bytes) {
        auto kept = std::make_shared<decltype(make())>(make());  // std::function copies what it holds
        result.bytes = [kept](index count) { return static_cast<double>(kept->max_bytes(count)); };
    } else {
        result.bytes = [per_value](index count) { return per_value * static_cast<double>(count); };
    }
    return result;
}

/// The candidate that every governor needs.
inline reduction_candidate dense_candidate(std::vector<std::string> algorithms) {
    return {"", [](index n) { return 4.0 * static_cast<double>(n); }, 0, 0, std::move(algorithms)};
}

}  // namespace cairn
