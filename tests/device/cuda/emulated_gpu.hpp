#pragma once
// A GPU made of the host's processor, for tests of what a real one runs: the bodies of kernels (device/cuda/grid.hpp), thread by thread.
// The threads of a block are coroutines, so that sync() and shuffle_xor() mean what they mean there. Found are, with an exception:
//   a thread that leaves its block, or the kernel, while others wait in sync()
//   host code that reads or writes device memory outside of launches and copies (a segmentation fault: the pages are closed)
// A read that races with a write of another thread of the block may go unnoticed: threads run one after the other between two syncs, forwards
// or, with `backwards`, from the last to the first.

#include <cairn/device/cuda/grid.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define CAIRN_FIBERS_ANNOTATED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define CAIRN_FIBERS_ANNOTATED 1
#endif
#endif

namespace cairn {

namespace emulation {

/// One block: runs its threads as coroutines, each up to the next barrier in turn.
class block_runner {
public:
    static constexpr std::size_t stack_bytes = 64 << 10;

    block_runner(index block, const grid_size& g, bool backwards)
        : block_(block),
          size_(g),
          backwards_(backwards),
          shared_(static_cast<std::size_t>(g.shared) + 64),
          exchange_(static_cast<std::size_t>(g.threads)) {}

    /// What a body sees.
    class thread_view {
    public:
        thread_view(block_runner& all, int thread) : all_(all), thread_(thread) {}
        index thread() const { return thread_; }
        index threads() const { return all_.size_.threads; }
        index block() const { return all_.block_; }
        index blocks() const { return all_.size_.blocks; }
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
        template <class T>
        T* shared() {
            return reinterpret_cast<T*>(all_.shared_.data());
        }

    private:
        block_runner& all_;
        int thread_;
    };

    template <class Body>
    void run(const Body& body) {
        start_ = [](block_runner& self, int thread, const void* b) {
            thread_view view(self, thread);
            (*static_cast<const Body*>(b))(view);
        };
        body_ = &body;
        const int n = size_.threads;
        fibers_.resize(static_cast<std::size_t>(n));
        int running = n;
        while (running > 0) {
            int waiting = 0;
            for (int i = 0; i < n; ++i) {
                const int t = backwards_ ? n - 1 - i : i;
                fiber& f = fibers_[static_cast<std::size_t>(t)];
                if (f.done) continue;
                resume(t);
                if (failure_) std::rethrow_exception(failure_);
                if (f.done)
                    --running;
                else
                    ++waiting;
            }
            require(waiting == 0 || running == n, "emulated GPU: block ", block_, ": ", n - running,
                    " threads have left while ", waiting, " wait for them in sync()");
        }
    }

private:
    struct fiber {
        ucontext_t context{};
        std::unique_ptr<char[]> stack;
        bool done = false, started = false;
        void* fake_stack = nullptr;
    };

    void wait() {
        fiber& f = fibers_[static_cast<std::size_t>(current_)];
        leave(&f.fake_stack);
        swapcontext(&f.context, &scheduler_);
        arrive(f.fake_stack);
    }

    void resume(int thread) {
        fiber& f = fibers_[static_cast<std::size_t>(thread)];
        current_ = thread;
        if (!f.started) {
            f.started = true;
            f.stack.reset(new char[stack_bytes]);
            getcontext(&f.context);
            f.context.uc_stack.ss_sp = f.stack.get();
            f.context.uc_stack.ss_size = stack_bytes;
            f.context.uc_link = &scheduler_;
            const auto self = reinterpret_cast<std::uintptr_t>(this);
            makecontext(&f.context, reinterpret_cast<void (*)()>(&block_runner::entry), 2,
                        static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
        }
#if CAIRN_FIBERS_ANNOTATED
        __sanitizer_start_switch_fiber(&scheduler_fake_stack_, f.stack.get(), stack_bytes);
#endif
        swapcontext(&scheduler_, &f.context);
#if CAIRN_FIBERS_ANNOTATED
        __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
    }

    static void entry(unsigned high, unsigned low) {
        auto& self = *reinterpret_cast<block_runner*>(std::uintptr_t{high} << 32 | low);
        self.arrive(nullptr);
        const int thread = self.current_;
        try {
            self.start_(self, thread, self.body_);
        } catch (...) {
            self.failure_ = std::current_exception();
        }
        self.fibers_[static_cast<std::size_t>(thread)].done = true;
        self.leave(nullptr);
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

    index block_;
    grid_size size_;
    bool backwards_;
    std::vector<char> shared_;
    std::vector<std::array<char, 16>> exchange_;
    std::vector<fiber> fibers_;
    void (*start_)(block_runner&, int, const void*) = nullptr;
    const void* body_ = nullptr;
    ucontext_t scheduler_{};
    int current_ = 0;
    std::exception_ptr failure_;
    const void* scheduler_stack_ = nullptr;
    std::size_t scheduler_size_ = 0;
    void* scheduler_fake_stack_ = nullptr;
};

/// Pages that are closed but while an `opened` lives.
class closed_memory : public memory_pool {
public:
    static constexpr index bytes = index{1} << 32;

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
        void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        require(range != MAP_FAILED, "emulated GPU: no address space");
        return static_cast<char*>(range);
    }
    void protect(int how) {
        const index used = std::min<index>(bytes, (touched_end() - begin() + 4095) / 4096 * 4096);
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
    static inline bool backwards = false;
    static inline std::atomic<index> launches = 0;

    static emulation::closed_memory& memory() {
        static auto* pool = new emulation::closed_memory;
        return *pool;
    }

    /// A moment of a thread's launches. They run at once here, so nothing waits: counted is whether somebody would.
    struct mark {
        mark() { ++made; }
        void wait() const { ++waited; }
        static inline std::atomic<index> made = 0, waited = 0;
    };

    /// Device memory may be touched while it lives.
    struct opened {
        opened() { memory().open(); }
        ~opened() { memory().close(); }
        opened(const opened&) = delete;
    };

    template <class Body>
    static void launch(const grid_size& g, const Body& body) {
        require(g.blocks >= 1 && g.blocks < (index{1} << 31) && g.threads >= warp_threads && g.threads <= 1024 &&
                    g.threads % warp_threads == 0 && g.shared >= 0 && g.shared <= 48 << 10,
                "emulated GPU: a grid of ", g.blocks, " blocks, ", g.threads, " threads, ", g.shared, " bytes");
        const opened memory_is;
        ++launches;
        for (index block = 0; block < g.blocks; ++block) emulation::block_runner(block, g, backwards).run(body);
    }
    static void copy_to_device(void* to, const void* from, index bytes) { copy(to, from, bytes); }
    static void copy_to_host(void* to, const void* from, index bytes) { copy(to, from, bytes); }
    static void copy_within(void* to, const void* from, index bytes) { copy(to, from, bytes); }
    static void set_bytes(void* to, int value, index bytes) {
        const opened memory_is;
        std::memset(to, value, static_cast<std::size_t>(bytes));
    }
    static int multiprocessors() { return 1; }

private:
    static void copy(void* to, const void* from, index bytes) {
        const opened memory_is;
        std::memmove(to, from, static_cast<std::size_t>(bytes));
    }
};

static_assert(GridDevice<emulated_gpu>);

}  // namespace cairn
