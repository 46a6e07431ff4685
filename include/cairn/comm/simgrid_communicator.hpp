#pragma once
// The communicator of simulated ranks (comm/simgrid.hpp). A message inside the phantom range travels as its size alone,
// any other with its bytes; the simulated size is the true one in both. Messages below the machine's `eager` bytes
// leave at once, longer ones when their receiver asks.

#if CAIRN_HAS_SIMGRID  // defined by the CMake target cairn::simgrid; without SimGrid this header is empty

#include <cairn/comm/communicator.hpp>
#include <cairn/comm/simgrid_rank.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cairn {

namespace detail {

/// One side of a message.
struct simulated_message {
    bool sends = false;
    std::size_t bytes = 0;
    std::byte* room = nullptr;                     // of a receive
    std::shared_ptr<std::vector<std::byte>> data;  // of a send outside the phantom range, and of its receive
    bool matched = false;
    s4u::CommPtr under_way;  // null: complete, as far as this side can tell
};

/// From one rank to another in one communicator, with one tag. Sides are matched in the order in which they are posted,
/// here for their bytes and by SimGrid's mailboxes for their time: in two, since a mailbox is eager or not.
struct simulated_channel {
    std::deque<std::shared_ptr<simulated_message>> waiting;  // all of one side
    s4u::Mailbox *eager = nullptr, *rendezvous = nullptr;
};

/// Ranks of one communicator, kept once for all of them.
struct simulated_group {
    struct entry {
        int colour, key, rank;
    };
    int context = 0;
    std::vector<int> members;  // ranks of the simulation
    s4u::BarrierPtr all_here;
    std::vector<std::unordered_map<std::uint64_t, simulated_channel>> to;  // by receiver, then by sender and tag
    std::vector<entry> entries;                                            // of the split under way
    std::size_t came = 0;
    std::vector<std::pair<std::shared_ptr<simulated_group>, int>> parts;  // by rank: its part, its number there

    simulated_group(int number, std::vector<int> ranks)
        : context(number),
          members(std::move(ranks)),
          all_here(s4u::Barrier::create(static_cast<unsigned>(members.size()))),
          to(members.size()),
          entries(members.size()),
          parts(members.size()) {}
};

}  // namespace detail

/// See the top of the file.
class simgrid_communicator {
    using group = detail::simulated_group;
    using message = detail::simulated_message;
    using channel = detail::simulated_channel;
    using machine = detail::simulated_machine;
    struct place : detail::rank_state {
        detail::simulation_state* state = nullptr;
        std::shared_ptr<detail::simulated_group> all;
    };

    using mailbox_pointer = detail::s4u::Mailbox*;

public:
    class request {
    public:
        void wait() {
            if (!posted_) return;
            machine& here = machine::here();
            here.spend();
            message& m = *posted_->message;
            const detail::simulated_wait what{posted_->place.get(), m.sends, m.bytes, posted_->peer, posted_->tag};
            const double begin = here.now();
            here.waits = &what;
            here.wait_for(m.under_way, m.bytes, axis_of(cause_of(posted_->place->calls)) == "pipeline");
            here.waits = nullptr;
            here.numbers().waited += here.now() - begin;
            arrive();
        }
        /// Where the message is still under way, a moment passes: polling ends.
        bool test() {
            if (!posted_) return true;
            machine& here = machine::here();
            here.spend();
            bool done = false;
            let_others_run([&] { done = posted_->message->under_way->test(); });
            if (done)
                arrive();
            else
                here.pass(std::max(1e-6, here.state.machine.message));
            return done;
        }

    private:
        friend class simgrid_communicator;

        /// A message under way; cancelled with its request.
        struct posted_message {
            std::shared_ptr<simgrid_communicator::message> message;  // null: arrived
            channel* at;
            std::shared_ptr<simgrid_communicator::place> place;
            int peer, tag;

            ~posted_message() {
                if (!message) return;
                if (message->matched) {  // SimGrid goes on with it: the receiver, or nobody, gets it
                    place->state->left.push_back(message->under_way);
                } else {
                    std::erase(at->waiting, message);
                    let_others_run([&] { message->under_way->cancel(); });
                }
            }
        };

        void arrive() {
            const auto m = std::exchange(posted_->message, nullptr);
            posted_ = nullptr;
            if (m->room && m->data && m->bytes > 0) std::memcpy(m->room, m->data->data(), m->bytes);
        }

        std::unique_ptr<posted_message> posted_;  // null: complete
    };

    simgrid_communicator(detail::simulation_state& state, std::shared_ptr<group> all, int rank)
        : place_(std::make_shared<place>()) {
        place_->rank = rank;
        place_->size = static_cast<int>(all->members.size());
        place_->state = &state;
        place_->all = std::move(all);
    }

    int rank() const { return place_->rank; }
    int size() const { return place_->size; }
    std::string name() const { return "simgrid"; }

    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        simulated_rank& numbers = machine::here().numbers();
        const sent_messages one{1, static_cast<std::int64_t>(data.size())};
        numbers.messages += one.messages, numbers.bytes += one.bytes;
        cairn::count(numbers.sent, cause_of(place_->calls), one);
        auto m = std::make_shared<message>();
        m->sends = true;
        m->bytes = data.size();
        if (!is_phantom(data)) m->data = std::make_shared<std::vector<std::byte>>(data.begin(), data.end());
        return post(std::move(m), peer, tag);
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) {
        auto m = std::make_shared<message>();
        m->bytes = room.size();
        if (!is_phantom(room)) m->room = room.data();
        return post(std::move(m), peer, tag);
    }

    /// Takes the time of an all-gather of 12 bytes a rank, in a tree's rounds.
    [[nodiscard]] simgrid_communicator split(int colour, int key) {
        group& all = *place_->all;
        all.entries[static_cast<std::size_t>(rank())] = {colour, key, rank()};
        machine::here().spend();
        if (++all.came == all.entries.size()) {
            all.came = 0;
            make_parts(all);
        }
        machine::here().wait([&] { all.all_here->wait(); });
        const auto rounds = static_cast<int>(std::bit_width(static_cast<unsigned>(size() - 1)));
        machine::here().pass(rounds * machine::here().message_seconds(12.0 * size() / std::max(1, rounds)));
        auto& [part, number] = all.parts[static_cast<std::size_t>(rank())];
        return {*place_->state, std::move(part), number};
    }

    /// The ranks of one host.
    [[nodiscard]] simgrid_communicator split_node() {
        return split(place_->state->machine.host_of(machine::here().rank()), rank());
    }

    [[nodiscard]] auto enter(const collective_call& call) { return detail::entered_call<place>(place_, call); }

private:
    request post(std::shared_ptr<message> m, int peer, int tag) {
        detail::require_transfer(rank(), size(), m->sends, m->bytes, peer, tag);
        detail::simulation_state& state = *place_->state;
        machine::here().spend_later(state.machine.message);
        machine::here().spend();
        const int from = m->sends ? rank() : peer, to = m->sends ? peer : rank();
        channel& at = channel_of(from, to, tag);
        const bool eager = static_cast<index_t>(m->bytes) < state.machine.eager;
        const mailbox_pointer box = mailbox(at, from, to, tag, eager);
        if (at.waiting.empty() || at.waiting.front()->sends == m->sends) {
            at.waiting.push_back(m);
        } else {
            message& other = *at.waiting.front();
            const message &sent = m->sends ? *m : other, &expected = m->sends ? other : *m;
            require(sent.bytes == expected.bytes, "rank ", from, " sends ", sent.bytes, " bytes to rank ", to,
                    " with tag ", tag, ", which expects ", expected.bytes);
            (m->sends ? other : *m).data = sent.data;
            other.matched = m->matched = true;
            at.waiting.pop_front();
        }
        request r;
        let_others_run([&] {
            static void* nothing = &nothing;  // bytes travel by themselves
            if (!m->sends) {
                m->under_way = box->get_init()->set_dst_data(&nothing, sizeof nothing);
            } else {
                m->under_way = box->put_init(nothing, std::max<std::size_t>(m->bytes, 1));
                if (eager) return void(m->under_way->detach());
            }
            m->under_way->vetoable_start();
        });
        if (!eager || !m->sends) r.posted_.reset(new request::posted_message{std::move(m), &at, place_, peer, tag});
        return r;
    }

    channel& channel_of(int from, int to, int tag) {
        return place_->all->to[static_cast<std::size_t>(to)]
                              [static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(tag)];
    }
    mailbox_pointer mailbox(channel& at, int from, int to, int tag, bool eager) {
        mailbox_pointer& box = eager ? at.eager : at.rendezvous;
        if (box) return box;
        mailbox_pointer made = nullptr;
        let_others_run([&] {
            made = detail::s4u::Mailbox::by_name(concat(place_->all->context, ' ', from, ' ', to, ' ', tag, eager));
            if (eager)
                made->set_receiver(
                    place_->state
                        ->actors[static_cast<std::size_t>(place_->all->members[static_cast<std::size_t>(to)])]);
        });
        return box = made;
    }

    /// By the last rank that comes to a split.
    void make_parts(group& all) {
        auto entries = all.entries;
        std::ranges::stable_sort(entries, {}, [](const group::entry& e) { return std::pair(e.colour, e.key); });
        for (std::size_t begin = 0; begin < entries.size();) {
            std::size_t end = begin + 1;
            while (entries[begin].colour >= 0 && end < entries.size() && entries[end].colour == entries[begin].colour)
                ++end;
            std::vector<int> members;
            for (std::size_t i = begin; i < end; ++i)
                members.push_back(all.members[static_cast<std::size_t>(entries[i].rank)]);
            std::shared_ptr<group> part;
            let_others_run([&] { part = std::make_shared<group>(place_->state->next_context++, std::move(members)); });
            for (std::size_t i = begin; i < end; ++i)
                all.parts[static_cast<std::size_t>(entries[i].rank)] = {part, static_cast<int>(i - begin)};
            begin = end;
        }
    }

    std::shared_ptr<place> place_;
};

static_assert(Communicator<simgrid_communicator>);

}  // namespace cairn

#endif
