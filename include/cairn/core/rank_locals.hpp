#pragma once
// Ranks that take turns on one thread, as the actors of a simulation do, share what is thread_local and what the
// runtime keeps of exceptions. Each keeps its own over every call in which others may run:
//   let_others_run([&] { …wait… });

#include <cairn/core/memory.hpp>
#include <cairn/core/phantom.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/core/trace.hpp>

#include <cstring>
#include <string>
#include <utility>

#include <cxxabi.h>

namespace cairn {

/// All that a thread holds of its rank. Taken from the thread, which is then as new, and put back.
class rank_locals {
public:
    rank_locals()
        : memory_(memory_pool::exchange_of_thread({})),
          path_(trace_scope::exchange_path({})),
          trace_(std::exchange(trace::of_rank(), nullptr)),
          machine_(std::exchange(phantom_here, nullptr)),
          pool_instead_(std::exchange(pool_instead_of_host(), nullptr)) {
        const exceptions none{};
        std::memcpy(&exceptions_, abi::__cxa_get_globals(), sizeof exceptions_);
        std::memcpy(abi::__cxa_get_globals(), &none, sizeof none);
    }
    rank_locals(const rank_locals&) = delete;
    rank_locals& operator=(const rank_locals&) = delete;

    /// `thrown`: an exception that has come since is under way.
    void put_back(bool thrown) {
        memory_pool::exchange_of_thread(memory_);
        trace_scope::exchange_path(std::move(path_));
        trace::of_rank() = trace_;
        phantom_here = machine_;
        pool_instead_of_host() = pool_instead_;
        if (thrown) ++exceptions_.uncaught;
        std::memcpy(abi::__cxa_get_globals(), &exceptions_, sizeof exceptions_);
    }

private:
    static memory_pool*& pool_instead_of_host() { return pool_instead<cpu>; }
    struct exceptions {  // as the C++ ABI lays them out
        void* caught;
        unsigned uncaught;
    };

    memory_pool::of_thread memory_;
    std::string path_;
    trace* trace_;
    phantom_machine* machine_;
    memory_pool* pool_instead_;
    exceptions exceptions_{};
};

/// f(), in which other ranks may run on this thread.
template <class F>
void let_others_run(F&& f) {
    rank_locals mine;
    struct back {
        ~back() { mine.put_back(thrown); }
        rank_locals& mine;
        bool thrown = true;
    } when_done{mine};
    f();
    when_done.thrown = false;
}

}  // namespace cairn
