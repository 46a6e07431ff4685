#pragma once
// Error texts about a rank and its messages, for communicators over a library (comm/mpi.hpp, comm/nccl.hpp,
// comm/threads.hpp).

#include <cairn/comm/communicator.hpp>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn::detail {

/// "ring all-reduce of 1000 float (gradients, bucket 3)"
inline std::string text_of(const collective_call& call) {
    if (call.name.empty()) return std::string(call.label);
    return concat(call.name, " of ", call.count, ' ', call.type,
                  call.label.empty() ? "" : concat(" (", call.label, ')'));
}

/// "send of 40 bytes to rank 1, tag 9"
inline std::string text_of_transfer(bool sends, std::size_t bytes, int peer, int tag) {
    return concat(sends ? "send of " : "receive of ", bytes, " bytes ", sends ? "to rank " : "from rank ", peer,
                  ", tag ", tag);
}

/// Throws where rank `rank` of `size` has no such peer, or there is no such tag.
inline void require_transfer(int rank, int size, bool sends, std::size_t bytes, int peer, int tag) {
    require(peer >= 0 && peer < size, "rank ", rank, " of ", size, ": there is no rank ", peer, " (",
            sends ? "send" : "receive", " of ", bytes, " bytes, tag ", tag, ')');
    require(tag >= 0 && tag <= max_tag, "rank ", rank, ": tag ", tag, " is outside 0 to ", max_tag);
}

/// What rank `rank` threw, named by it, and its text.
inline std::pair<std::exception_ptr, std::string> named_failure(int rank, std::exception_ptr failure) {
    try {
        std::rethrow_exception(failure);
    } catch (error& e) {
        const std::string why = e.what();
        error named = e;
        named.add_context(concat("rank ", rank));
        return {std::make_exception_ptr(named), why};
    } catch (const std::exception& e) {
        return {failure, e.what()};
    } catch (...) {
        return {failure, "an unknown exception"};
    }
}

/// A rank of a communicator, and the collectives that it is in.
struct rank_state {
    int rank = 0, size = 1;
    double limit = default_time_limit();  // seconds that a wait may take; 0: for ever
    std::vector<collective_call> calls;   // innermost last; callers keep the texts
};

/// A collective among its rank's calls, until this goes. Handle: a rank_state.
template <class Handle>
class entered_call {
public:
    entered_call(std::shared_ptr<Handle> handle, const collective_call& call) : handle_(std::move(handle)) {
        handle_->calls.push_back(call);
    }
    ~entered_call() { handle_->calls.pop_back(); }
    entered_call(const entered_call&) = delete;
    entered_call& operator=(const entered_call&) = delete;

private:
    std::shared_ptr<Handle> handle_;
};

}  // namespace cairn::detail
