#pragma once
// A GPU made of the host's processor, for tests of what a real one runs: kernels (device/grid/grid.hpp), thread by
// thread.
// The threads of a block are coroutines, so that sync() and shuffle_xor() mean what they mean there. Found are, with an
// exception:
//   a thread that leaves its block, or the kernel, while others wait in sync()
//   host code that reads or writes device memory outside of launches and copies (a segmentation fault: the pages are
//   closed)
// A read that races with a write of another thread of the block may go unnoticed: threads run one after the other
// between two syncs, forwards or, with `backwards`, from the last to the first.

#include "device/cuda/stack_switch.hpp"

#include <cairn/device/grid/grid.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define CAIRN_FIBERS_ANNOTATED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define CAIRN_FIBERS_ANNOTATED 1
#endif
#endif

// swapcontext() asks the kernel for the signal mask every time; a jump does not, but sanitizers and fortified libraries
// know no jumps between stacks.

namespace cairn {

namespace emulation {

/// Runs blocks of one grid, one after the other. A coroutine runs thread after thread until one of them waits in
/// sync(); the next coroutine goes on with the threads that have not begun. So a kernel that never waits needs one, and
/// others one a thread.
class block_runner {
public:
    static constexpr std::size_t stack_bytes = 64 << 10;

    block_runner(const grid_size& g, bool backwards)
        : size_(g),
          backwards_(backwards),
          shared_(static_cast<std::size_t>(g.shared) + 64),
          exchange_(static_cast<std::size_t>(g.threads)) {}

    /// A block, as kernels see it.
    class thread_view {
    public:
        thread_view(block_runner& all, int thread) : all_(all), thread_(thread) {}
        index_t thread() const { return thread_; }
        index_t threads() const { return all_.size_.threads; }
        index_t block() const { return all_.block_; }
        index_t blocks() const { return all_.size_.blocks; }
        void sync() { all_.wait(); }
        template <class T>
        T shuffle_xor(T v, int mask) {
            static_assert(sizeof(T) <= 16);
            std::memcpy(&all_.exchange_[static_cast<std::size_t>(thread_)], &v, sizeof v);
            all_.wait();
            T other;
            std::memcpy(&other, &all_.exchange_[static_cast<std::size_t>(thread_ ^ mask)], sizeof v);
            all_.wait();
            return other;
        }
        void add(std::uint32_t* to, std::uint32_t n) { *to += n; }
        template <class T>
        T* shared() {
            return reinterpret_cast<T*>(all_.shared_.data());
        }

    private:
        block_runner& all_;
        int thread_;
    };

    template <class Body>
    void run(index_t block, const Body& body) {
        start_ = [](block_runner& self, int thread, const void* b) {
            thread_view view(self, thread);
            (*static_cast<const Body*>(b))(view);
        };
        body_ = &body;
        block_ = block;
        begun_ = 0;
        std::fill(shared_.begin(), shared_.end(), '\xff');  // not numbers: shared memory begins with anything
        const int n = size_.threads;
        int waiting = 0;
        while (begun_ < n) waiting += resume(fibers_.emplace_back());
        while (waiting > 0) {
            require(waiting == n, "emulated GPU: block ", block_, ": ", n - waiting, " threads have left while ",
                    waiting, " wait for them in sync()");
            waiting = 0;
            for (fiber& f : fibers_) waiting += resume(f);
        }
        for (fiber& f : fibers_) spare_stacks().push_back(std::move(f.stack));
        fibers_.clear();
    }

private:
    struct fiber {
        stack_place place;
        std::unique_ptr<char[]> stack;
        bool done = false;
        void* fake_stack = nullptr;
    };

    // Of coroutines that came to their end, for the next ones of the calling thread.
    static std::vector<std::unique_ptr<char[]>>& spare_stacks() {
        thread_local std::vector<std::unique_ptr<char[]>> spare;
        return spare;
    }

    [[gnu::noinline]] void wait() {  // like resume(), what optimised.cpp has for all
        fiber& f = *current_;
        leave(&f.fake_stack);
        switch_stacks(&f.place, &scheduler_);
        arrive(f.fake_stack);
    }

    // Whether a thread of this coroutine waits afterwards.
    [[gnu::noinline]] bool resume(fiber& f) {
        if (f.done) return false;
        current_ = &f;
        if (!f.stack) prepare(f);
#if CAIRN_FIBERS_ANNOTATED
        __sanitizer_start_switch_fiber(&scheduler_fake_stack_, f.stack.get(), stack_bytes);
#endif
        switch_stacks(&scheduler_, &f.place);
#if CAIRN_FIBERS_ANNOTATED
        __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
        if (failure_) std::rethrow_exception(failure_);
        return !f.done;
    }

    void prepare(fiber& f) {
        auto& spare = spare_stacks();
        if (spare.empty()) {
            f.stack.reset(new char[stack_bytes]);
        } else {
            f.stack = std::move(spare.back());
            spare.pop_back();
        }
        starting() = this;
        prepare_stack(f.place, f.stack.get(), stack_bytes, &block_runner::entry);
    }

    // Whose coroutine begins.
    static block_runner*& starting() {
        thread_local block_runner* runner = nullptr;
        return runner;
    }

    static void entry() {
        block_runner& self = *starting();
        self.arrive(nullptr);
        fiber& mine = *self.current_;
        try {
            for (const int n = self.size_.threads; self.begun_ < n;) {
                const int next = self.begun_++;
                self.start_(self, self.backwards_ ? n - 1 - next : next, self.body_);
            }
        } catch (...) {
            self.failure_ = std::current_exception();
        }
        mine.done = true;
        self.leave(nullptr);
        switch_stacks(&mine.place, &self.scheduler_);  // for good
    }

    // Tells the address sanitizer which stack comes next.
    void leave([[maybe_unused]] void** fake_stack) {
#if CAIRN_FIBERS_ANNOTATED
        __sanitizer_start_switch_fiber(fake_stack, scheduler_stack_, scheduler_size_);
#endif
    }
    void arrive([[maybe_unused]] void* fake_stack) {
#if CAIRN_FIBERS_ANNOTATED
        __sanitizer_finish_switch_fiber(fake_stack, &scheduler_stack_, &scheduler_size_);
#endif
    }

    grid_size size_;
    bool backwards_;
    std::vector<char> shared_;
    std::vector<std::array<char, 16>> exchange_;
    std::deque<fiber> fibers_;  // in the order of their threads; a deque: they must not move
    void (*start_)(block_runner&, int, const void*) = nullptr;
    const void* body_ = nullptr;
    index_t block_ = 0;
    int begun_ = 0;  // threads of the block
    stack_place scheduler_;
    fiber* current_ = nullptr;
    std::exception_ptr failure_;
    const void* scheduler_stack_ = nullptr;
    std::size_t scheduler_size_ = 0;
    void* scheduler_fake_stack_ = nullptr;
};

/// Pages that are closed but while an `opened` lives.
class closed_memory : public memory_pool {
public:
    static constexpr index_t bytes = index_t{1} << 32;
    static constexpr index_t large_page = index_t{2} << 20;  // closing one takes as long as closing one of 4 KiB

    closed_memory() : memory_pool(reserve_range(), bytes, bytes, "memory of the emulated GPU", "nothing") {}

    void open() {
        const std::scoped_lock lock(mutex_);
        ++depth_;
        protect(PROT_READ | PROT_WRITE);  // also where another thread has opened what there was before
    }
    void close() {
        const std::scoped_lock lock(mutex_);
        if (--depth_ == 0) protect(PROT_NONE);
    }

private:
    static char* reserve_range() {
        void* range = mmap(nullptr, bytes + large_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        require(range != MAP_FAILED, "emulated GPU: no address space");
        const auto first = (reinterpret_cast<std::uintptr_t>(range) + large_page - 1) / large_page * large_page;
        madvise(reinterpret_cast<void*>(first), bytes, MADV_HUGEPAGE);
        return reinterpret_cast<char*>(first);
    }
    void protect(int how) {
        const index_t used =
            std::min<index_t>(bytes, (touched_end() - begin() + large_page - 1) / large_page * large_page);
        if (used > 0)
            mprotect(begin(), static_cast<std::size_t>(used),
                     how);  // what comes later is closed until the next opening
    }
    std::mutex mutex_;  // ranks may be threads
    int depth_ = 0;
};

}  // namespace emulation

/// The emulated device. Its threads run in order, or `backwards`.
struct emulated_gpu {
    static constexpr const char* name = "emulated_gpu";
    static constexpr index_t most_shared = 99 << 10;  // what every GPU since 8.0 has for a block
    static inline bool backwards = false;
    static inline std::atomic<index_t> launches = 0;
    static inline std::atomic<index_t> waits = 0;  // for all that was launched
    static inline std::atomic<index_t> launches_at_last_finish = 0;

    static emulation::closed_memory& memory() {
        static auto* pool = new emulation::closed_memory;
        return *pool;
    }

    /// A moment of a thread's launches. They run at once here, so nothing waits: counted is whether somebody would.
    struct event {
        event() { ++made; }
        void wait() const { ++waited; }
        static inline std::atomic<index_t> made = 0, waited = 0;
    };

    static memory_pool& host_memory() { return memory_pool::host(); }

    /// Copies that are made as late as they may be: when somebody waits for them, or at the end.
    class copy_stream {
        using copies = std::vector<std::function<void()>>;

    public:
        struct moment {
            std::vector<std::shared_ptr<copies>> begun;
            void wait() const {
                for (const auto& some : begun)
                    for (const auto& copy_now : std::exchange(*some, {})) copy_now();
            }
            void finish() const { wait(); }
        };
        copy_stream() = default;
        copy_stream(const copy_stream&) = delete;
        ~copy_stream() { done().wait(); }

        void after(const event& m) {
            m.wait();
            ordered_ = true;
        }
        void copy(void* to, const void* from, index_t bytes) {
            require(ordered_, "emulated GPU: a copy beside launches that follows none of them");
            begun_.back()->push_back([=] { copy_to_device(to, from, bytes); });
            ++begun;
            bytes_begun += bytes;
        }
        template <class Body>
        void launch(const grid_size& g, const Body& body) {
            require(ordered_, "emulated GPU: a launch beside launches that follows none of them");
            begun_.back()->push_back([=] { emulated_gpu::launch(g, body); });
        }
        moment done() {
            const moment until_now{begun_};
            std::erase_if(begun_, [](const auto& some) { return some->empty(); });
            begun_.push_back(std::make_shared<copies>());
            ordered_ = false;
            return until_now;
        }
        static inline std::atomic<index_t> begun = 0, bytes_begun = 0;

    private:
        std::vector<std::shared_ptr<copies>> begun_{std::make_shared<copies>()};
        bool ordered_ = false;
    };

    /// Device memory may be touched while it lives.
    struct opened {
        opened() { memory().open(); }
        ~opened() { memory().close(); }
        opened(const opened&) = delete;
    };

    class recording;

    /// Launches in order, as they were recorded.
    class graph {
    public:
        void launch() const {
            require(!recorded_work(), "emulated GPU: a graph is launched while another is recorded");
            ++launched;
            for (const auto& w : work_) w();
        }
        bool empty() const { return work_.empty(); }
        static inline std::atomic<index_t> launched = 0;

    private:
        friend class recording;
        std::vector<std::function<void()>> work_;
    };

    /// While it lives, what this thread launches is put into graphs.
    class recording {
    public:
        recording() {
            require(!recorded_work(), "emulated GPU: a record within a record");
            recorded_work() = &now_.work_;
        }
        ~recording() { recorded_work() = nullptr; }
        recording(const recording&) = delete;
        graph cut() {
            graph before = std::move(now_);
            now_.work_.clear();
            return before;
        }
        graph end() {
            recorded_work() = nullptr;
            return std::move(now_);
        }

    private:
        graph now_;
    };
    static bool is_recording() { return recorded_work() != nullptr; }

    /// Does it now, or records it.
    template <class Work>
    static void run(Work work) {
        if (recorded_work())
            recorded_work()->push_back(std::move(work));
        else
            work();
    }

    template <class Body>
    static void launch(const grid_size& g, const Body& body) {
        if (recorded_work()) return run([=] { launch(g, body); });
        require(g.blocks >= 1 && g.blocks < (index_t{1} << 31) && g.threads >= warp_threads &&
                    g.threads <= most_threads<Body> && g.threads % warp_threads == 0 && g.shared >= 0 &&
                    g.shared <= most_shared,
                "emulated GPU: a grid of ", g.blocks, " blocks, ", g.threads, " threads, ", g.shared, " bytes");
        const opened memory_is;
        ++launches;
        emulation::block_runner runner(g, backwards);
        for (index_t block = 0; block < g.blocks; ++block) runner.run(block, body);
    }
    static void copy_to_device(void* to, const void* from, index_t bytes) { wait(), copy(to, from, bytes); }
    static void copy_to_host(void* to, const void* from, index_t bytes) { wait(), copy(to, from, bytes); }
    /// A copy from the host: what it is made of must stay until somebody has waited for it, or for all that the thread
    /// has launched.
    struct arriving {
        index_t number;
        void finish() const { sources_are_untouched(number); }
    };
    static arriving begin_copy_to_device(void* to, const void* from, index_t bytes) {
        refuse_recording();
        sources_are_untouched(-1);
        const auto* const first = static_cast<const char*>(from);
        pending_copies().push_back({next_copy, from, {first, first + bytes}});
        copy(to, from, bytes);
        return {next_copy++};
    }
    /// A copy to the host that is there when somebody has waited for it, and no earlier.
    struct leaving {
        void* to;
        std::vector<char> bytes;
        index_t copies_before;
        void finish() const {
            std::memcpy(to, bytes.data(), bytes.size());
            launches_at_last_finish = launches.load();
            sources_are_untouched(copies_before);
        }
    };
    static leaving begin_copy_to_host(void* to, const void* from, index_t bytes) {
        refuse_recording();
        leaving l{to, std::vector<char>(static_cast<std::size_t>(bytes)), next_copy - 1};
        copy(l.bytes.data(), from, bytes);
        return l;
    }
    static void copy_within(void* to, const void* from, index_t bytes) {
        run([=] { copy(to, from, bytes); });
    }
    static void set_bytes(void* to, int value, index_t bytes) {
        run([=] {
            const opened memory_is;
            std::memset(to, value, static_cast<std::size_t>(bytes));
        });
    }
    static void wait() {
        refuse_recording();
        ++waits;
        sources_are_untouched(next_copy - 1);
    }
    static int multiprocessors() { return 1; }

private:
    // Copies of the calling thread from the host that nobody has waited for.
    struct pending_copy {
        index_t number;
        const void* from;
        std::vector<char> was;
    };
    static inline thread_local index_t next_copy = 0;
    static std::vector<pending_copy>& pending_copies() {
        thread_local std::vector<pending_copy> all;
        return all;
    }
    // Copies up to `done` are.
    static void sources_are_untouched(index_t done) {
        auto& all = pending_copies();
        const bool same = std::ranges::all_of(
            all, [](const pending_copy& c) { return std::memcmp(c.from, c.was.data(), c.was.size()) == 0; });
        if (!same) all.clear();
        require(same,
                "emulated GPU: what is being copied from the host was changed before anybody waited for the copy");
        std::erase_if(all, [&](const pending_copy& c) { return c.number <= done; });
    }

    static void refuse_recording() {
        require(!recorded_work(), "emulated GPU: somebody waits for what is being recorded");
    }
    static std::vector<std::function<void()>>*& recorded_work() {
        thread_local std::vector<std::function<void()>>* where = nullptr;
        return where;
    }
    static void copy(void* to, const void* from, index_t bytes) {
        const opened memory_is;
        if (bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
    }
};

static_assert(GridDevice<emulated_gpu>);

}  // namespace cairn
