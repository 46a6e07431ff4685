#pragma once
// All-reduce of compressed gradients: compressor × collective. Which collective follows from the compressor's contract:
//   messages that may be added (bf16, fp16)         all-reduce of the messages: 2 (p-1)/p m bytes a rank
//   others (topk, qsgd, …)                          all-gather of the messages, each decoded: (p-1) m
//   in two phases (onebit, sign)                    all-to-all of chunks, decode, encode, all-gather: 2 (p-1)/p m
//   methods that reduce less than the bucket        their own small all-reduces (powersgd)
// m: bytes of a message. The text is one for all devices: C carries D's memory, and where lengths are known before
// (contract.fixed_bytes), a mailbox holds all memory that a step needs. All replace `gradient` by the sum over ranks of
// what was sent, with the same bits on every rank, and return where the time went.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/all_to_all.hpp>
#include <cairn/compress/compressor.hpp>
#include <cairn/compress/two_phase.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/core/for_each.hpp>

#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

namespace cairn {

/// Cost of one compressed all-reduce on this rank.
struct exchange_cost {
    double encode = 0, communication = 0, decode = 0;  // seconds; on a device other than the host, of launches
    index_t bytes = 0;                                 // of its own messages, in all exchanges
    int exchanges = 1;
};

/// The messages of all ranks, each from a multiple of 16 bytes on.
template <Device D = cpu>
class mailbox {
public:
    mailbox() = default;
    /// For messages of these lengths.
    explicit mailbox(const std::vector<index_t>& bytes) { make(bytes); }

    /// Memory only grows.
    void make(const std::vector<index_t>& bytes) {
        parts_.clear();
        index_t at = 0;
        for (const index_t n : bytes) {
            parts_.push_back({at, n});
            at += (n + 15) / 16 * 16;
        }
        if (memory_.empty() || memory_.size() < at)
            memory_ = tensor<std::byte, D>::zeros({at}, memory_category::communication);
        total_ = at;
    }
    std::span<std::byte> of(int rank) { return subspan(all(), parts_[static_cast<std::size_t>(rank)]); }
    /// Memory for that rank's message.
    message<D> slot(int rank) {
        const range& p = parts_[static_cast<std::size_t>(rank)];
        return message<D>(memory_.slice(p.begin, {p.count}));
    }
    std::span<std::byte> all() { return memory_.span().first(static_cast<std::size_t>(total_)); }
    const std::vector<range>& parts() const { return parts_; }
    std::vector<std::span<const std::byte>> views() {
        std::vector<std::span<const std::byte>> each;
        for (int r = 0; r < static_cast<int>(parts_.size()); ++r) each.push_back(of(r));
        return each;
    }

private:
    tensor<std::byte, D> memory_;
    std::vector<range> parts_;
    index_t total_ = 0;
};

/// Throws where messages of D are gathered whose lengths differ: lengths are numbers of the host, and the host waits
/// for no device here. `who` starts the message.
template <Device D>
void require_known_lengths(bool fixed, std::string_view who) {
    require(std::same_as<D, cpu> || fixed, who, " on ", D::name, ": only messages of fixed length can be gathered");
}

/// All-gather of messages. `fixed`: of the lengths that the mailbox was made for; else lengths go round first.
template <Communicator C, Device D>
void gather_messages(C& c, std::span<const std::byte> mine, mailbox<D>& all, bool fixed) {
    if (!fixed) {
        require_known_lengths<D>(fixed, "a compressor");
        std::vector<std::int64_t> lengths(static_cast<std::size_t>(c.size()));
        lengths[static_cast<std::size_t>(c.rank())] = static_cast<std::int64_t>(mine.size());
        all_gather(c, std::span<std::int64_t>(lengths));
        all.make({lengths.begin(), lengths.end()});
    }
    if (mine.data() != all.of(c.rank()).data())
        D::copy_within(all.of(c.rank()).data(), mine.data(), static_cast<index_t>(mine.size()));
    all_gather(c, all.all(), all.parts());
}

/// Messages that may be added.
template <Communicator C, Compressor K>
exchange_cost summed_all_reduce(C& c, K& compressor, std::span<float> gradient, message<typename K::device>& out,
                                const encode_step& at) {
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

/// The mailbox that gathered_all_reduce needs for a bucket of n values: where lengths are fixed, it is all of its
/// memory.
template <Compressor K>
mailbox<typename K::device> mailbox_for(const K& compressor, index_t n, int ranks) {
    if (!compressor.contract(n).fixed_bytes) return {};
    return mailbox<typename K::device>(std::vector<index_t>(static_cast<std::size_t>(ranks), compressor.max_bytes(n)));
}

/// Any messages.
template <Communicator C, Compressor K>
exchange_cost gathered_all_reduce(C& c, K& compressor, std::span<float> gradient, mailbox<typename K::device>& mail,
                                  encode_step at) {
    using D = typename K::device;
    const auto n = static_cast<index_t>(gradient.size());
    const bool fixed = compressor.contract(n).fixed_bytes;
    stopwatch lap;
    if (fixed && mail.parts().empty()) mail = mailbox_for(compressor, n, c.size());
    message<D> mine = fixed ? mail.slot(c.rank()) : message<D>();
    compressor.encode(gradient, mine, at);
    exchange_cost cost{.encode = lap.restart(), .bytes = mine.size()};
    gather_messages(c, std::as_const(mine).bytes(), mail, fixed);
    cost.communication = lap.restart();
    fill_zero<D>(gradient);
    for (int r = 0; r < c.size(); ++r) {
        at.rank = r;
        compressor.decode_add(mail.of(r), gradient, at, 1.0f);
    }
    cost.decode = lap.restart();
    return cost;
}

/// Receive buffers of two_phase_all_reduce.
template <Device D = cpu>
struct two_phase_mail {
    mailbox<D> from_workers, from_servers;
};
template <class K>
two_phase_mail<typename K::device> mail_for(const two_phase<K>& method, int rank) {
    if (!method.fixed_bytes()) return {};
    std::vector<index_t> of_chunks;
    for (int j = 0; j < method.ranks(); ++j) of_chunks.push_back(method.max_bytes(j));
    using box = mailbox<typename K::device>;
    return {box(std::vector<index_t>(of_chunks.size(), method.max_bytes(rank))), box(of_chunks)};
}

namespace detail {

/// Message j of every rank goes to rank j. Returns the bytes that this rank made.
template <Communicator C, class K>
index_t send_to_servers(C& c, const two_phase<K>& method, mailbox<typename K::device>& from) {
    const int p = c.size(), rank = c.rank();
    std::vector<std::int64_t> lengths;
    for (int j = 0; j < p; ++j) lengths.push_back(static_cast<std::int64_t>(method.outgoing(j).size()));
    const index_t total = std::reduce(lengths.begin(), lengths.end());
    if (!method.fixed_bytes()) {
        std::vector<std::int64_t> coming(lengths.size());
        all_to_all(c, std::span<const std::int64_t>(lengths), std::span<std::int64_t>(coming));
        from.make({coming.begin(), coming.end()});
    }
    [[maybe_unused]] const auto scope = enter(c, {"all-to-all", "bytes"});  // each rank has lengths of its own
    std::vector<typename C::request> under_way;
    for (int s = 1; s < p; ++s) {
        const int to = (rank + s) % p, source = (rank + p - s) % p;
        under_way.push_back(c.irecv(from.of(source), source, all_to_all_tag));
        under_way.push_back(c.isend(method.outgoing(to), to, all_to_all_tag));
    }
    for (auto& one : under_way) one.wait();
    return total;
}

}  // namespace detail

/// Two exchanges of about the bytes of one message.
template <Communicator C, class K>
exchange_cost two_phase_all_reduce(C& c, two_phase<K>& method, std::span<float> gradient,
                                   two_phase_mail<typename K::device>& mail, const encode_step& at) {
    using D = typename K::device;
    stopwatch lap;
    method.encode(gradient, at);
    exchange_cost cost{.encode = lap.restart(), .exchanges = 2};
    cost.bytes = detail::send_to_servers(c, method, mail.from_workers);
    cost.communication = lap.restart();
    auto from = mail.from_workers.views();
    from[static_cast<std::size_t>(c.rank())] = method.outgoing(c.rank());
    const std::span<const std::byte> combined = method.combine(from, at);
    cost.encode += lap.restart();
    cost.bytes += static_cast<index_t>(combined.size());
    gather_messages(c, combined, mail.from_servers, method.fixed_bytes());
    cost.communication += lap.restart();
    method.decode(mail.from_servers.views(), gradient, at);  // the mean
    for_each(D{}, static_cast<index_t>(gradient.size()), functors::times<float>{static_cast<float>(c.size())},
             gradient.data());
    cost.decode = lap.restart();
    return cost;
}

/// A method with all-reduces of its own.
template <Communicator C, ReducingCompressor K>
exchange_cost reducing_all_reduce(C& c, K& method, std::span<float> gradient, const encode_step& at) {
    stopwatch lap;
    exchange_cost cost{.exchanges = 0};
    method.reduce(std::span<const float>(gradient), gradient, c.size(), at, [&](std::span<float> part) {
        cost.encode += lap.restart();
        all_reduce(c, part);
        cost.communication += lap.restart();
        cost.bytes += static_cast<index_t>(part.size_bytes());
        ++cost.exchanges;
    });
    cost.decode = lap.restart();
    return cost;
}

}  // namespace cairn
