#pragma once
// The communicator of one rank: what a program runs on that was started alone. A message to itself is copied.

#include <cairn/comm/communicator.hpp>
#include <cairn/core/phantom.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace cairn {

/// One rank, number 0.
class self_communicator {
    struct message {
        std::size_t size;
        std::vector<std::byte> bytes;  // none from the phantom range
    };
    using mailbox = std::map<int, std::deque<message>>;  // by tag

public:
    /// A send is complete at once; a receive when its message has been sent.
    class request {
    public:
        request() = default;
        request(request&& other) noexcept { *this = std::move(other); }
        request& operator=(request&& other) noexcept {
            room_ = other.room_;
            tag_ = other.tag_;
            box_ = std::exchange(other.box_, nullptr);
            return *this;
        }

        void wait() {
            if (!test())
                fail("self: rank 0 of 1 waits for ", room_.size(), " bytes from itself with tag ", tag_,
                     ", which it has not sent: it would wait forever");
        }
        bool test() {
            if (!box_) return true;
            auto& queue = (*box_)[tag_];
            if (queue.empty()) return false;
            const message m = std::move(queue.front());
            queue.pop_front();
            box_ = nullptr;
            require(m.size == room_.size(), "self: rank 0 receives ", room_.size(), " bytes from itself with tag ",
                    tag_, ", but ", m.size, " were sent");
            if (!is_phantom(room_)) std::copy(m.bytes.begin(), m.bytes.end(), room_.begin());
            return true;
        }

    private:
        friend class self_communicator;
        request(std::span<std::byte> room, int tag, std::shared_ptr<mailbox> box)
            : room_(room), tag_(tag), box_(std::move(box)) {}

        std::span<std::byte> room_;
        int tag_ = 0;
        std::shared_ptr<mailbox> box_;
    };

    int rank() const { return 0; }
    int size() const { return 1; }
    std::string name() const { return "self"; }

    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        check(peer, tag);
        (*box_)[tag].push_back({data.size(), {}});
        if (!is_phantom(data)) (*box_)[tag].back().bytes.assign(data.begin(), data.end());
        return {};
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) {
        check(peer, tag);
        return {room, tag, box_};
    }
    [[nodiscard]] self_communicator split(int, int) { return {}; }
    [[nodiscard]] self_communicator split_node() { return {}; }

private:
    static void check(int peer, int tag) {
        require(peer == 0, "self: peer ", peer, " asked for; this program runs as one rank, number 0");
        require(tag >= 0 && tag <= max_tag, "self: tag ", tag, " is outside 0 to ", max_tag);
    }

    std::shared_ptr<mailbox> box_ = std::make_shared<mailbox>();
};

static_assert(Communicator<self_communicator>);

}  // namespace cairn
