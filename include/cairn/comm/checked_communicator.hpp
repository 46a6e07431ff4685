#pragma once
// Debug mode: wraps any communicator and detects ranks that make different calls, before they hang or mix up data.
//   checked_communicator c(world);    or, in programs, CAIRN_COMM_DEBUG=1: see checked_if_asked
//   collectives  before each, rank 0 compares what all ranks call and tells them. Where they differ, every rank throws
//                "rank 0 calls ring all-reduce of 1000 float, rank 2 calls broadcast of 7 double from rank 0"; a rank
//                that does not come within the time limit is named
//   messages     each is preceded by its size: a receive of another size throws an error that names both
// Checks travel on separate communicators. A collective costs one more round trip to rank 0, a message another of
// 8 bytes. After an error the communicator is unusable.

#include <cairn/comm/any.hpp>
#include <cairn/core/clock.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace cairn {

/// See the top of the file.
template <Communicator C>
class checked_communicator {
    using text = std::array<char, 512>;  // ends with 0

public:
    /// A send or receive, and the message with its size.
    class request {
    public:
        request() = default;
        request(request&&) noexcept = default;
        request& operator=(request&& other) noexcept {
            size_request_ = std::move(other.size_request_);
            inner_ = std::move(other.inner_);
            size_ = std::move(other.size_);
            bytes_ = other.bytes_, rank_ = other.rank_, peer_ = other.peer_, tag_ = other.tag_;
            return *this;
        }

        void wait() {
            size_request_.wait();
            compare();
            inner_.wait();
        }
        bool test() {
            if (!size_request_.test()) return false;
            compare();
            return inner_.test();
        }

    private:
        friend class checked_communicator;
        void compare() {
            if (!size_ || *size_ == bytes_) return;
            inner_ = {};
            fail("rank ", peer_, " sends ", *size_, " bytes to rank ", rank_, " with tag ", tag_, ", which expects ",
                 bytes_);
        }

        std::unique_ptr<std::int64_t> size_;  // outlives the requests below
        typename C::request size_request_, inner_;
        std::int64_t bytes_ = 0;
        int rank_ = 0, peer_ = 0, tag_ = 0;
    };

    /// Collective. time_limit: seconds for which a collective waits for ranks that do not come; 0: for ever; below 0:
    /// that of all waits.
    explicit checked_communicator(C inner, double time_limit = -1)
        : inner_(std::move(inner)),
          sizes_(inner_.split(0, inner_.rank())),
          calls_(inner_.split(0, inner_.rank())),
          limit_(time_limit < 0 ? default_time_limit() : time_limit) {}

    int rank() const { return inner_.rank(); }
    int size() const { return inner_.size(); }
    std::string name() const { return "checked " + std::string(inner_.name()); }

    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        request r = started(data.size(), peer, tag);
        r.inner_ = inner_.isend(data, peer, tag);
        r.size_request_ = sizes_.isend(std::as_bytes(std::span(r.size_.get(), 1)), peer, tag);
        return r;
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) {
        request r = started(room.size(), peer, tag);
        r.inner_ = inner_.irecv(room, peer, tag);
        r.size_request_ = sizes_.irecv(std::as_writable_bytes(std::span(r.size_.get(), 1)), peer, tag);
        return r;
    }

    [[nodiscard]] checked_communicator split(int colour, int key) {
        compare({"split", "communicator", 1});
        return checked_communicator(inner_.split(colour, key), limit_);
    }
    [[nodiscard]] checked_communicator split_node() requires requires(C& c) { c.split_node(); }
    {
        compare({"split by node", "communicator", 1});
        return checked_communicator(inner_.split_node(), limit_);
    }

    /// Throws on every rank if the ranks' calls differ, or if a rank does not come.
    [[nodiscard]] auto enter(const collective_call& call) {
        if (!call.name.empty()) compare(call);
        return cairn::enter(inner_, call);
    }

    void compute(index_t bytes) {
        if constexpr (requires { inner_.compute(bytes); }) inner_.compute(bytes);
    }
    vendor_collectives* vendor() { return vendor_of(inner_); }

private:
    static constexpr int call_tag = 1, verdict_tag = 2;

    request started(std::size_t bytes, int peer, int tag) {
        request r;
        r.bytes_ = static_cast<std::int64_t>(bytes);
        r.size_ = std::make_unique<std::int64_t>(r.bytes_);
        r.rank_ = rank(), r.peer_ = peer, r.tag_ = tag;
        return r;
    }

    static text fixed(const std::string& s) {
        text t{};
        std::copy_n(s.begin(), std::min(s.size(), t.size() - 1), t.begin());
        return t;
    }
    static std::string described(const collective_call& call) {
        return concat(call.name, " of ", call.count, ' ', call.type,
                      call.root < 0 ? "" : concat(call.name == "reduce" ? " to rank " : " from rank ", call.root),
                      call.label.empty() ? "" : concat(" (", call.label, ')'));
    }

    /// Whether r completes within so many seconds; 0: waits for ever.
    static bool completes(typename C::request& r, double seconds) {
        if (on_phantom_rank()) return r.wait(), true;  // a rank that never comes is known there
        const double begin = now();
        for (int looks = 0; !r.test(); ++looks) {
            if (seconds > 0 && now() - begin > seconds) return false;
            if (looks > 50) std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        return true;
    }

    void compare(const collective_call& call) {
        if (size() == 1) return;
        const text mine = fixed(described(call));
        text verdict{};
        if (rank() == 0) {
            verdict = judge(mine);
        } else {
            send(calls_, std::span<const char>(mine), 0, call_tag);
            auto told = cairn::irecv(calls_, std::span<char>(verdict), 0, verdict_tag);
            // Rank 0 may come a time limit later than this rank, and wait as long for another.
            if (!completes(told, 2 * limit_))
                fail("rank ", rank(), " of ", size(), " waited ", 2 * limit_, " s in ", mine.data(),
                     " for rank 0, which does not come");
        }
        if (verdict[0]) fail("rank ", rank(), " of ", size(), ": ", verdict.data());
    }

    /// On rank 0: what is wrong, empty if nothing, told to all ranks.
    text judge(const text& mine) {
        const auto p = static_cast<std::size_t>(size());
        std::vector<text> theirs(p);
        std::vector<typename C::request> calls(p), told(p);
        for (std::size_t r = 1; r < p; ++r)
            calls[r] = cairn::irecv(calls_, std::span<char>(theirs[r]), static_cast<int>(r), call_tag);
        const double begin = now();
        std::vector<bool> came(p, true);
        std::string differs, missing;
        for (std::size_t r = 1; r < p; ++r) {
            came[r] = completes(calls[r], limit_ > 0 ? std::max(1e-6, limit_ - (now() - begin)) : 0);
            if (!came[r])
                missing += concat(missing.empty() ? "" : ", ", r);
            else if (differs.empty() && theirs[r] != mine)
                differs = concat("rank 0 calls ", mine.data(), ", rank ", r, " calls ", theirs[r].data());
        }
        if (!missing.empty())
            differs += concat(differs.empty() ? "" : "; ", "rank(s) ", missing, " did not come to ", mine.data(),
                              " within ", limit_, " s");
        const text verdict = fixed(differs);
        for (std::size_t r = 1; r < p; ++r)
            told[r] = cairn::isend(calls_, std::span<const char>(verdict), static_cast<int>(r), verdict_tag);
        for (std::size_t r = 1; r < p; ++r)
            if (came[r]) told[r].wait();
        return verdict;
    }

    C inner_, sizes_, calls_;
    double limit_;
};

/// Whether the environment asks for the checks: CAIRN_COMM_DEBUG=1.
inline bool checks_asked() {
    const char* text = std::getenv("CAIRN_COMM_DEBUG");
    return text && std::string_view(text) != "" && std::string_view(text) != "0";
}

/// c, with the checks around it if the environment asks for them. Collective.
template <Communicator C>
[[nodiscard]] any_communicator checked_if_asked(C c) {
    if (checks_asked()) return checked_communicator<C>(std::move(c));
    return c;
}

}  // namespace cairn
