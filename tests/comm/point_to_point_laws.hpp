#pragma once
// The laws of every communicator, as functions that throw on the rank that sees it broken.

#include <cairn/comm/communicator.hpp>
#include <cairn/core/random.hpp>

#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace cairn::laws {

inline std::vector<std::uint32_t> numbers(int from, int to, int which, std::size_t n) {
    std::vector<std::uint32_t> v(n);
    for (std::size_t i = 0; i < n; ++i)
        v[i] = static_cast<std::uint32_t>(from * 1'000'003 + to * 10'007 + which * 101) + static_cast<std::uint32_t>(i);
    return v;
}

/// Messages of all sizes to every rank, this one included, arrive in order, in both directions at once.
template <Communicator C>
void order_and_sizes(C& c) {
    using words = std::vector<std::uint32_t>;
    const std::vector<std::size_t> sizes{0, 1, 3, 1000, 70'000, 1};
    std::vector<words> out, in;
    std::vector<typename C::request> pending;
    for (int peer = 0; peer < c.size(); ++peer)
        for (std::size_t k = 0; k < sizes.size(); ++k) {
            out.push_back(numbers(c.rank(), peer, static_cast<int>(k), sizes[k]));
            in.push_back(words(sizes[k]));
        }
    std::size_t next = 0;
    for (int peer = 0; peer < c.size(); ++peer)
        for (std::size_t k = 0; k < sizes.size(); ++k, ++next) {
            pending.push_back(irecv(c, std::span<std::uint32_t>(in[next]), peer, 5));
            pending.push_back(isend(c, std::span<const std::uint32_t>(out[next]), peer, 5));
        }
    for (auto& p : pending) p.wait();
    next = 0;
    for (int peer = 0; peer < c.size(); ++peer)
        for (std::size_t k = 0; k < sizes.size(); ++k, ++next)
            require(in[next] == numbers(peer, c.rank(), static_cast<int>(k), sizes[k]), "rank ", c.rank(), ": message ",
                    k, " of rank ", peer, " is not what it sent");
}

/// Tags keep messages apart: received in the opposite order.
template <Communicator C>
void tags(C& c) {
    constexpr int many = 8;
    const int right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
    std::vector<int> out(many), in(many, -1);
    std::iota(out.begin(), out.end(), 100 * c.rank());
    std::vector<typename C::request> sent;
    for (int t = 0; t < many; ++t)
        sent.push_back(isend(c, std::span<const int>(&out[static_cast<std::size_t>(t)], 1), right, t * 100));
    for (int t = many; t-- > 0;) recv(c, std::span<int>(&in[static_cast<std::size_t>(t)], 1), left, t * 100);
    for (auto& s : sent) s.wait();
    for (int t = 0; t < many; ++t)
        require(in[static_cast<std::size_t>(t)] == 100 * left + t, "tag ", t * 100, " brought another message");
}

/// test() makes progress; a request that is complete stays so; a moved one is complete.
template <Communicator C>
void testing(C& c) {
    const int right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
    std::vector<std::uint32_t> out = numbers(c.rank(), right, 9, 50'000), in(50'000);
    auto got = irecv(c, std::span<std::uint32_t>(in), left, 1);
    auto sent = isend(c, std::span<const std::uint32_t>(out), right, 1);
    bool received = false, delivered = false;
    while (!received || !delivered) {
        received = received || got.test();
        delivered = delivered || sent.test();
    }
    require(got.test() && sent.test(), "a complete request is not complete any more");
    got.wait();
    auto moved = std::move(sent);
    moved.wait();
    require(in == numbers(left, c.rank(), 9, 50'000), "rank ", c.rank(), " got other numbers");
}

/// Groups by colour, order by key; what happens in one is not seen in another.
template <Communicator C>
void splitting(C& c) {
    const int colour = c.rank() % 2;
    C part = c.split(colour, -c.rank());
    const int expected = (c.size() + 1 - colour) / 2;
    require(part.size() == expected, "split: ", part.size(), " ranks of colour ", colour, ", expected ", expected);
    require(part.rank() == expected - 1 - c.rank() / 2, "split: rank ", part.rank(), " by key");
    const int right = (part.rank() + 1) % part.size(), left = (part.rank() + part.size() - 1) % part.size();
    int mine = c.rank(), theirs = -1;
    sendrecv(part, std::span<const int>(&mine, 1), right, std::span<int>(&theirs, 1), left, 5);
    require(theirs % 2 == colour, "split: a message came from the other group");
    C alone = c.split(-1, 0);
    require(alone.size() == 1 && alone.rank() == 0, "split: colour -1 is not alone");
}

/// A part is split again as the whole is, and messages of whole, part and part of the part, equal in peer and tag, stay
/// apart.
template <Communicator C>
void nested_splitting(C& c) {
    C part = c.split(c.rank() / 2, c.rank()), inner = part.split(0, -part.rank());
    const int expected = c.rank() / 2 * 2 + 1 < c.size() ? 2 : 1;
    require(part.size() == expected && inner.size() == expected, "nested split: ", part.size(), " and ", inner.size(),
            " ranks, expected ", expected);
    require(part.rank() == c.rank() % 2 && inner.rank() == expected - 1 - part.rank(), "nested split: ranks");
    const int me = c.rank(), peer = c.rank() / 2 * 2 + expected - 1 - part.rank();
    const std::vector<int> out{me, me + 100, me + 200};
    std::vector<int> in(3, -1);
    std::vector<typename C::request> pending;
    const auto exchange = [&](C& with, int other, std::size_t which) {
        pending.push_back(isend(with, std::span<const int>(&out[which], 1), other, 6));
        pending.push_back(irecv(with, std::span<int>(&in[which], 1), other, 6));
    };
    exchange(inner, expected - 1 - inner.rank(), 2);
    exchange(part, expected - 1 - part.rank(), 1);
    exchange(c, peer, 0);
    for (auto& p : pending) p.wait();
    require(in == std::vector<int>{peer, peer + 100, peer + 200}, "nested split: rank ", me,
            " got messages of another part");
}

/// A request that is dropped does not touch its buffer afterwards, nor disturb what comes later.
template <Communicator C>
void dropping(C& c) {
    if (c.size() < 2) return;
    const int right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
    {
        std::vector<int> room(10);
        const auto never = irecv(c, std::span<int>(room), left, 77);
    }
    int mine = c.rank(), theirs = -1;
    sendrecv(c, std::span<const int>(&mine, 1), right, std::span<int>(&theirs, 1), left, 78);
    require(theirs == left, "a dropped receive took a message");
}

/// Random traffic: every rank knows what all send.
template <Communicator C>
void traffic(C& c) {
    const random_stream random{5, 1, 0};
    constexpr int messages = 60;
    std::vector<std::vector<std::uint32_t>> kept(messages), rooms(messages);
    std::vector<typename C::request> pending;
    const auto of = [&](int m, int what, int n) {
        return static_cast<int>(random.below(static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(4 * m + what)));
    };
    for (int m = 0; m < messages; ++m) {
        const int from = of(m, 0, c.size()), to = of(m, 1, c.size()), tag = of(m, 2, 3);
        const auto n = static_cast<std::size_t>(of(m, 3, 5000));
        auto& out = kept[static_cast<std::size_t>(m)];
        auto& in = rooms[static_cast<std::size_t>(m)];
        if (to == c.rank()) {
            in.resize(n);
            pending.push_back(irecv(c, std::span<std::uint32_t>(in), from, tag));
        }
        if (from == c.rank()) {
            out = numbers(from, to, m, n);
            pending.push_back(isend(c, std::span<const std::uint32_t>(out), to, tag));
        }
    }
    for (auto& p : pending) p.wait();
    for (int m = 0; m < messages; ++m) {
        const auto& in = rooms[static_cast<std::size_t>(m)];
        if (of(m, 1, c.size()) == c.rank())
            require(in == numbers(of(m, 0, c.size()), c.rank(), m, in.size()), "random traffic: message ", m,
                    " is another one");
    }
}

template <Communicator C>
void all(C& c) {
    order_and_sizes(c);
    tags(c);
    testing(c);
    splitting(c);
    nested_splitting(c);
    traffic(c);
    dropping(c);  // last: its tag is lost
}

}  // namespace cairn::laws
