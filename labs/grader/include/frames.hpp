#pragma once
// What travels through the two pipes between the judge and one worker: frames, a header and its payload.

#include <cstdint>

namespace lab {

enum class to_worker : std::uint32_t {
    call,    // name, rank, ranks, then the arguments
    done,    // of the request `number`: what was received, empty for a send
    ready,   // 1 byte: whether the request `number` is complete
    part,    // of a split: context and members
    answer,  // to an ask
};

enum class to_judge : std::uint32_t {
    reply = 100,  // to the call `number`: 0 and the result, or 1, the exception's type and its text
    send,         // request `number`: context, peer, tag, then the message
    receive,      // request `number`: context, peer, tag, bytes
    wait,         // for the request `number`: blocks until `done`
    test,         // the request `number`: blocks until `ready`
    cancel,       // the request `number`
    split,        // of the context `number`: colour, key; blocks until `part`
    enter,        // a collective: its name
    leave,
    ask,  // a question of the call: name, then the arguments; blocks until `answer`
};

struct frame_header {
    std::uint32_t kind = 0, number = 0;
    std::uint64_t bytes = 0;  // of the payload
};

inline constexpr std::uint64_t most_frame_bytes = std::uint64_t{1} << 26;

}  // namespace lab
