#pragma once
// Counts an algorithm's use of the network: wraps any communicator and satisfies the same concept, so that students'
// and the library's algorithms are measured alike on any machine.
//   counting_communicator c(world);
//   ring_all_reduce(c, data);
//   c.counts().messages, .bytes, .rounds
//   messages   sends that this rank started               bytes      of them
//   rounds     length of the longest chain of dependent messages that ends at this rank: a sent message extends the
//              chain of the messages received before it; a receive continues the sender's chain (Lamport's clock,
//              carried with the message)
//   peak       bytes of sends and receives that were in flight at once
// by_cause() has messages and bytes by cause (comm/traffic.hpp).
// Vendor collectives hide their messages: they count as a ring's, the least possible, without a peak.

#include <cairn/comm/traffic.hpp>
#include <cairn/comm/vendor_collectives.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cairn {

/// Of one rank.
struct communication_counts {
    std::int64_t messages = 0, bytes = 0;                    // sent
    std::int64_t received_messages = 0, received_bytes = 0;  // asked for
    std::int64_t reduced_bytes = 0;                          // that reduce_local() went over
    std::int64_t rounds = 0;
    std::int64_t peak_bytes = 0;
};

/// "4 messages, 12000 bytes sent, 3 rounds, 4000 bytes in flight at most"
inline std::ostream& operator<<(std::ostream& out, const communication_counts& c) {
    return out << c.messages << " messages, " << c.bytes << " bytes sent, " << c.rounds << " rounds, " << c.peak_bytes
               << " bytes in flight at most";
}

/// One collective's counts on this rank, nested ones included.
struct call_counts {
    std::int64_t times = 0, messages = 0, bytes = 0;
};

/// See the top of the file. Each message is followed by one of 8 bytes, with the same tag, that carries the clock; it
/// is not counted.
template <Communicator C>
class counting_communicator : private vendor_collectives {
    struct state {
        communication_counts counts;
        std::int64_t in_flight = 0;
        std::map<std::string, call_counts> calls;  // collectives by name
        std::map<std::string, int> open;           // of them, those that have begun
        traffic by_cause;

        void begin(std::int64_t bytes) { counts.peak_bytes = std::max(counts.peak_bytes, in_flight += bytes); }
        void end(std::int64_t bytes) { in_flight -= bytes; }
    };

public:
    class request {
    public:
        request() = default;
        request(request&&) noexcept = default;
        request& operator=(request&& other) noexcept {
            finish();
            inner_ = std::move(other.inner_);
            clock_request_ = std::move(other.clock_request_);
            clock_ = std::move(other.clock_);
            state_ = std::move(other.state_);
            bytes_ = other.bytes_;
            receives_ = other.receives_;
            return *this;
        }
        ~request() { finish(); }

        void wait() {
            if (!state_) return;
            inner_.wait();
            clock_request_.wait();
            complete();
        }
        bool test() {
            if (!state_) return true;
            if (!inner_.test() || !clock_request_.test()) return false;
            complete();
            return true;
        }

    private:
        friend class counting_communicator;
        void complete() {
            if (receives_) state_->counts.rounds = std::max(state_->counts.rounds, *clock_);
            finish();
        }
        void finish() {
            if (state_) state_->end(bytes_);
            state_ = nullptr;
        }

        std::unique_ptr<std::int64_t> clock_;  // outlives the requests below
        typename C::request inner_, clock_request_;
        std::shared_ptr<state> state_;
        std::int64_t bytes_ = 0;
        bool receives_ = false;
    };

    explicit counting_communicator(C inner)
        : inner_(std::move(inner)),
          state_(std::make_shared<state>()),
          inside_(std::make_shared<std::vector<collective_call>>()) {}

    int rank() const { return inner_.rank(); }
    int size() const { return inner_.size(); }
    std::string name() const { return "counting " + std::string(inner_.name()); }

    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        request r = started(data.size(), false);
        count_sent({1, r.bytes_});
        *r.clock_ = state_->counts.rounds + 1;
        r.inner_ = inner_.isend(data, peer, tag);
        r.clock_request_ = inner_.isend(std::as_bytes(std::span(r.clock_.get(), 1)), peer, tag);
        return r;
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) {
        request r = started(room.size(), true);
        ++state_->counts.received_messages;
        state_->counts.received_bytes += r.bytes_;
        r.inner_ = inner_.irecv(room, peer, tag);
        r.clock_request_ = inner_.irecv(std::as_writable_bytes(std::span(r.clock_.get(), 1)), peer, tag);
        return r;
    }
    /// A part that counts into the same numbers.
    [[nodiscard]] counting_communicator split(int colour, int key) {
        counting_communicator part(inner_.split(colour, key));
        part.state_ = state_;
        return part;
    }
    [[nodiscard]] counting_communicator split_node() requires requires(C& c) { c.split_node(); }
    {
        counting_communicator part(inner_.split_node());
        part.state_ = state_;
        return part;
    }
    [[nodiscard]] auto enter(const collective_call& call) {
        struct scope {
            scope(counting_communicator& c, const collective_call& what)
                : inner(cairn::enter(c.inner_, what)),
                  kept(c.state_),
                  inside(c.inside_),
                  name(what.name),
                  messages(kept->counts.messages),
                  bytes(kept->counts.bytes) {
                inside->push_back(what);
                if (!name.empty() && kept->open[name]++ == 0) ++kept->calls[name].times;
            }
            ~scope() {
                inside->pop_back();
                if (name.empty() || --kept->open[name] > 0) return;  // within a call of the same name, which counts
                call_counts& sum = kept->calls[name];
                sum.messages += kept->counts.messages - messages;
                sum.bytes += kept->counts.bytes - bytes;
            }
            scope(const scope&) = delete;
            scope& operator=(const scope&) = delete;

            decltype(cairn::enter(std::declval<C&>(), std::declval<const collective_call&>())) inner;
            std::shared_ptr<state> kept;
            std::shared_ptr<std::vector<collective_call>> inside;
            std::string name;
            std::int64_t messages, bytes;  // when it began
        };
        return scope(*this, call);
    }
    bool buffers_on_gpu() const { return cairn::buffers_on_gpu(inner_); }
    vendor_collectives* vendor() { return vendor_of(inner_) ? this : nullptr; }

    /// reduce_local() is about to go over this many bytes.
    void compute(index_t bytes) { state_->counts.reduced_bytes += bytes; }

    const communication_counts& counts() const { return state_->counts; }
    const std::map<std::string, call_counts>& calls() const { return state_->calls; }
    const traffic& by_cause() const { return state_->by_cause; }
    /// Not inside a collective.
    void reset() { *state_ = {}; }
    /// All counts, and a line for each collective.
    void print(std::ostream& out) const {
        out << "rank " << rank() << " of " << size() << ": " << state_->counts << '\n';
        for (const auto& [call, sum] : state_->calls)
            out << "  " << call << ": " << sum.times << " times, " << sum.messages << " messages, " << sum.bytes
                << " bytes sent\n";
    }

private:
    // Bytes of the library's own collectives, as rings have them.
    void all_reduce(vendor_span data, reduction r) override {
        const auto [count, size] =
            std::visit([](auto all) { return std::pair(std::ssize(all), sizeof(all[0])); }, data);
        const auto parts = shards_of(count, this->size());
        goes_round(parts, rank() + 1, size);  // reduce-scatter
        goes_round(parts, rank() + 2, size);  // all-gather
        vendor_of(inner_)->all_reduce(data, r);
    }
    void broadcast(std::span<std::byte> data, int root) override {
        const auto bytes = static_cast<std::int64_t>(data.size());
        count_vendor((rank() + 1) % size() != root, bytes, rank() != root, bytes, (rank() - root + size()) % size());
        vendor_of(inner_)->broadcast(data, root);
    }
    void all_gather(std::span<std::byte> data, const std::vector<range>& parts) override {
        goes_round(parts, rank() + 1, 1);
        vendor_of(inner_)->all_gather(data, parts);
    }
    void reduce_scatter(vendor_span data, const std::vector<range>& parts, reduction r) override {
        goes_round(parts, rank(), std::visit([](auto all) { return sizeof(all[0]); }, data));
        vendor_of(inner_)->reduce_scatter(data, parts, r);
    }

    void count_sent(const sent_messages& more) {
        state_->counts.messages += more.messages, state_->counts.bytes += more.bytes;
        cairn::count(state_->by_cause, cause_of(*inside_), more);
    }
    void count_vendor(std::int64_t sends, std::int64_t bytes_of_each, std::int64_t receives,
                      std::int64_t bytes_of_each_received, std::int64_t rounds) {
        communication_counts& c = state_->counts;
        count_sent({sends, sends * bytes_of_each});
        c.received_messages += receives, c.received_bytes += receives * bytes_of_each_received;
        c.rounds += rounds;
    }
    // This rank passes all parts on to the right but one, and gets all from the left but the one before.
    void goes_round(const std::vector<range>& parts, int all_but, std::size_t size_of_one) {
        const auto count_of = [&](int r) {
            return parts[static_cast<std::size_t>((r + size()) % size())].count *
                   static_cast<std::int64_t>(size_of_one);
        };
        std::int64_t all = 0;
        for (int r = 0; r < size(); ++r) all += count_of(r);
        count_vendor(size() - 1, 0, size() - 1, 0, size() - 1);
        count_sent({0, all - count_of(all_but)});
        state_->counts.received_bytes += all - count_of(all_but - 1);
    }

    request started(std::size_t bytes, bool receives) {
        request r;
        r.state_ = state_;
        r.bytes_ = static_cast<std::int64_t>(bytes);
        r.receives_ = receives;
        r.clock_ = std::make_unique<std::int64_t>(0);
        state_->begin(r.bytes_);
        return r;
    }

    C inner_;
    std::shared_ptr<state> state_;                          // of all parts
    std::shared_ptr<std::vector<collective_call>> inside_;  // of this one
};

}  // namespace cairn
