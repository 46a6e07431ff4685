#pragma once
// All-reduce of compressed gradients: compressor × collective. Which collective follows from the compressor's contract:
//   messages that may be added (bf16, fp16)          all-reduce of the messages                  2 (p-1)/p m bytes a
//                                                    rank
//   others (topk, qsgd, …)                           all-gather of the messages, each decoded    (p-1) m
//   in two phases (onebit, sign)                     all-to-all of chunks, decode, encode again, all-gather    2
//                                                    (p-1)/p m
//   methods that reduce less than the bucket (powersgd)      their own small all-reduces
// m: bytes of a message. All replace `gradient` by the sum over ranks of what was sent, with the same bits on every
// rank, and return where the time went.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/all_to_all.hpp>
#include <cairn/compress/compressor.hpp>
#include <cairn/compress/two_phase.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/core/for_each.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace cairn {

/// What one compressed all-reduce cost this rank.
struct exchange_cost {
    double encode = 0, communication = 0, decode = 0;  // seconds
    index_t bytes = 0;                                 // of its own messages
};

/// The messages of all ranks, one behind another.
struct gathered_messages {
    tensor<std::byte> bytes;
    std::vector<range> parts;

    std::span<const std::byte> of(int rank) const {
        return subspan(bytes.span(), parts[static_cast<std::size_t>(rank)]);
    }
};

/// All-gather of messages whose lengths differ.
template <Communicator C>
gathered_messages gather_messages(C& c, std::span<const std::byte> mine) {
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(c.size()));
    lengths[static_cast<std::size_t>(c.rank())] = static_cast<std::int64_t>(mine.size());
    all_gather(c, std::span<std::int64_t>(lengths));
    gathered_messages all;
    index_t total = 0;
    for (const std::int64_t length : lengths) {
        all.parts.push_back({total, static_cast<index_t>(length)});
        total += static_cast<index_t>(length);
    }
    all.bytes = tensor<std::byte>({total}, memory_category::communication);
    std::copy(mine.begin(), mine.end(),
              subspan(all.bytes.span(), all.parts[static_cast<std::size_t>(c.rank())]).begin());
    all_gather(c, all.bytes.span(), all.parts);
    return all;
}

/// Messages that may be added.
template <Communicator C, Compressor K>
exchange_cost summed_all_reduce(C& c, K& compressor, std::span<float> gradient, message& out, const encode_step& at) {
    stopwatch lap;
    compressor.encode(gradient, out, at);
    exchange_cost cost{.encode = lap.restart(), .bytes = out.size()};
    const auto add = [&]<class T>(T) {
        all_reduce(c, std::span<T>(reinterpret_cast<T*>(out.bytes().data()), out.bytes().size() / sizeof(T)));
    };
    switch (compressor.contract(static_cast<index_t>(gradient.size())).summable) {
        case summand::float32:
            add(float{});
            break;
        case summand::bfloat16:
            add(bfloat16{});
            break;
        case summand::float16:
            add(float16{});
            break;
        default:
            fail(compressor.name(), ": its messages cannot be added by an all-reduce");
    }
    cost.communication = lap.restart();
    compressor.decode(std::as_const(out).bytes(), gradient, at);
    cost.decode = lap.restart();
    return cost;
}

/// Any messages.
template <Communicator C, Compressor K>
exchange_cost gathered_all_reduce(C& c, K& compressor, std::span<float> gradient, message& out, encode_step at) {
    stopwatch lap;
    compressor.encode(gradient, out, at);
    exchange_cost cost{.encode = lap.restart(), .bytes = out.size()};
    const gathered_messages all = gather_messages(c, std::as_const(out).bytes());
    cost.communication = lap.restart();
    fill_zero(gradient);
    for (int r = 0; r < c.size(); ++r) {
        at.rank = r;
        compressor.decode_add(all.of(r), gradient, at, 1.0f);
    }
    cost.decode = lap.restart();
    return cost;
}

/// Two exchanges of about the bytes of one message.
template <Communicator C, class K>
exchange_cost two_phase_all_reduce(C& c, two_phase<K>& method, std::span<float> gradient, const encode_step& at) {
    const int p = c.size();
    stopwatch lap;
    method.encode(gradient, at);
    exchange_cost cost{.encode = lap.restart()};
    // Lengths first: chunks differ.
    std::vector<std::int64_t> send_lengths(static_cast<std::size_t>(p)), lengths(static_cast<std::size_t>(p));
    for (int j = 0; j < p; ++j)
        send_lengths[static_cast<std::size_t>(j)] = static_cast<std::int64_t>(method.outgoing(j).size());
    all_to_all(c, std::span<const std::int64_t>(send_lengths), std::span<std::int64_t>(lengths));
    std::vector<range> out_parts, in_parts;
    index_t out_total = 0, in_total = 0;
    for (int j = 0; j < p; ++j) {
        out_parts.push_back({out_total, static_cast<index_t>(send_lengths[static_cast<std::size_t>(j)])});
        in_parts.push_back({in_total, static_cast<index_t>(lengths[static_cast<std::size_t>(j)])});
        out_total = out_parts.back().end();
        in_total = in_parts.back().end();
    }
    tensor<std::byte> out({out_total}, memory_category::communication), in({in_total}, memory_category::communication);
    for (int j = 0; j < p; ++j) {
        const std::span<const std::byte> m = method.outgoing(j);
        std::copy(m.begin(), m.end(), subspan(out.span(), out_parts[static_cast<std::size_t>(j)]).begin());
    }
    all_to_all(c, std::span<const std::byte>(out.span()), out_parts, in.span(), in_parts);
    const auto views = [p](auto&& of) {
        std::vector<std::span<const std::byte>> all;
        for (int r = 0; r < p; ++r) all.push_back(of(r));
        return all;
    };
    const auto from = views(
        [&](int r) { return std::span<const std::byte>(subspan(in.span(), in_parts[static_cast<std::size_t>(r)])); });
    cost.communication = lap.restart();
    const std::span<const std::byte> combined = method.combine(from, at);
    cost.encode += lap.restart();
    const gathered_messages results = gather_messages(c, combined);
    cost.communication += lap.restart();
    cost.bytes = out_total + static_cast<index_t>(combined.size());
    method.decode(views([&](int r) { return results.of(r); }), gradient, at);  // the mean
    for_each(
        cpu{}, static_cast<index_t>(gradient.size()), [scale = static_cast<float>(p)](float& g) { g *= scale; },
        gradient.data());
    cost.decode = lap.restart();
    return cost;
}

/// A method with all-reduces of its own.
template <Communicator C, ReducingCompressor K>
exchange_cost reducing_all_reduce(C& c, K& method, std::span<float> gradient, const encode_step& at) {
    stopwatch lap;
    exchange_cost cost{.bytes = method.exchanged() * static_cast<index_t>(sizeof(float))};
    method.reduce(std::span<const float>(gradient), gradient, c.size(), at, [&](std::span<float> part) {
        cost.encode += lap.restart();
        all_reduce(c, part);
        cost.communication += lap.restart();
    });
    for_each(
        cpu{}, static_cast<index_t>(gradient.size()), [scale = static_cast<float>(c.size())](float& g) { g *= scale; },
        gradient.data());
    cost.decode = lap.restart();
    return cost;
}

}  // namespace cairn
