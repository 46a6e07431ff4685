#pragma once
// The pool that every tensor's memory comes from. It counts live and peak bytes by category, so that a claim about
// memory is read from counters, and it hands blocks out again without returning to the system in between. Devices with
// memory of their own derive from it: they give the address range, and back it as it is taken.
//   allocate  best fit among the free ranges of one large reserved address range, lowest address first
//   release   the range merges with its free neighbours
// A rank that is a thread has a pool of its own, and so have the threads that help it (in_pool_of_caller).
// Only touched pages cost memory. Under AddressSanitizer, and with CAIRN_POOL=system, each block is its own allocation.

#include <cairn/core/error.hpp>
#include <cairn/core/free_ranges.hpp>
#include <cairn/core/memory_use.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace cairn {

/// Memory pool, thread safe. Blocks are aligned to 64 bytes (a cache line and an AVX-512 register).
class memory_pool {
public:
    static constexpr index_t alignment = 64;

    /// The host's pool of the calling thread: that of its rank, if ranks are threads, else that of the process.
    static memory_pool& host() { return current_ ? *current_ : of_process(); }

    /// Live bytes of all pools of the host.
    static index_t host_live() { return host_live_; }

    /// While it lives, the calling thread takes the host's memory from `pool`.
    class scope {
    public:
        explicit scope(memory_pool& pool) : before_(std::exchange(current_, &pool)) {}
        ~scope() { current_ = before_; }
        scope(const scope&) = delete;
        scope& operator=(const scope&) = delete;

    private:
        memory_pool* before_;
    };

    /// What a thread holds of its rank: its pool, and where its requests are logged.
    struct of_thread {
        memory_pool* pool = nullptr;
        memory_pool* noted = nullptr;
        std::vector<memory_request>* requests = nullptr;
    };
    /// Where ranks take turns on one thread (core/rank_locals.hpp).
    static of_thread exchange_of_thread(const of_thread& next) {
        const of_thread before{current_, noted_.pool, noted_.requests};
        current_ = next.pool;
        noted_ = {next.noted, next.requests};
        return before;
    }

    /// While it lives, blocks of any size are the calling thread's pool's own allocations: real ones on a phantom rank.
    class real_blocks {
    public:
        real_blocks() : pool_(host()), before_(std::exchange(pool_.alone_below_, no_limit)) {}
        ~real_blocks() { pool_.alone_below_ = before_; }
        real_blocks(const real_blocks&) = delete;
        real_blocks& operator=(const real_blocks&) = delete;

    private:
        memory_pool& pool_;
        index_t before_;
    };

    /// A pool of the host for one rank. Goes back after use; kept for ever, so that tensors may outlive their rank.
    class of_rank {
    public:
        of_rank() {
            const std::scoped_lock lock(unused().mutex);
            auto& pools = unused().pools;
            const auto clean = std::find_if(pools.begin(), pools.end(), [](auto* p) { return p->total().live == 0; });
            if (clean == pools.end()) {
                pool_ = new memory_pool;
            } else {
                pool_ = *clean;
                pools.erase(clean);
            }
            pool_->set_limit(of_process().limit());
            pool_->set_own_limit(no_limit);
            pool_->reset_peaks();
        }
        ~of_rank() {
            const std::scoped_lock lock(unused().mutex);
            unused().pools.push_back(pool_);
        }
        of_rank(const of_rank&) = delete;
        of_rank& operator=(const of_rank&) = delete;
        memory_pool& operator*() const { return *pool_; }

    private:
        struct list {
            std::mutex mutex;
            std::vector<memory_pool*> pools;
        };
        static list& unused() {
            static list* all = new list;
            return *all;
        }
        memory_pool* pool_;
    };

    /// A block of at least `bytes` bytes, at `at` where that is given and free. Throws error naming what was asked,
    /// held and allowed when memory is out.
    void* allocate(index_t bytes, memory_category use, char* at = nullptr) {
        const std::scoped_lock lock(mutex_);
        if (bytes < 0 || bytes > limit_) throw_out_of_memory(bytes, use);  // before rounding up, which may overflow
        const index_t size = rounded(bytes);
        if ((of_host_ ? host_live_.load() : total_.live) + size > limit_ || size > own_limit_ - total_.live)
            throw_out_of_memory(size, use);
        void* block = size < alone_below_ ? allocate_alone(size) : carve(size, at);
        if (!block) throw_out_of_memory(size, use);
        if (of_host_) host_live_ += size;
        total_.grow(size);
        by_category_[static_cast<std::size_t>(use)].grow(size);
        if (is_activation(use)) activations_.grow(size);
        if (noted_.pool == this) noted_.requests->push_back({block, bytes, use, true});
        return block;
    }

    /// Gives a block back; `bytes` and `use` as at allocation.
    void release(void* block, index_t bytes, memory_category use) noexcept {
        const index_t size = rounded(bytes);
        const std::scoped_lock lock(mutex_);
        if (of_host_) host_live_ -= size;
        total_.shrink(size);
        by_category_[static_cast<std::size_t>(use)].shrink(size);
        if (is_activation(use)) activations_.shrink(size);
        if (noted_.pool == this) noted_.requests->push_back({block, bytes, use, false});
        if (alone_below_ > 0 && (block < begin_ || block >= touched_))
            release_alone(block);
        else
            free_.give({static_cast<char*>(block), size});
    }

    /// As long as this lives, no other thread takes or returns memory: what free_ranges() says stays true.
    std::unique_lock<std::recursive_mutex> alone() { return std::unique_lock(mutex_); }

    /// Free ranges by address, of which the last was never used; none where each block is its own allocation.
    std::vector<memory_range> free_ranges() const {
        const std::scoped_lock lock(mutex_);
        return alone_below_ == no_limit ? std::vector<memory_range>{} : free_.all();
    }
    /// Bytes from the first address to the end of what was ever handed out: of a GPU's pool, what the driver counts.
    index_t extent() const {
        const std::scoped_lock lock(mutex_);
        return touched_ - begin_;
    }

    /// Moves a block's bytes to another category: activations to saved ones, or back.
    void recount(index_t bytes, memory_category from, memory_category to) noexcept {
        const std::scoped_lock lock(mutex_);
        by_category_[static_cast<std::size_t>(from)].shrink(rounded(bytes));
        by_category_[static_cast<std::size_t>(to)].grow(rounded(bytes));
    }

    /// Activations, saved ones among them.
    memory_use activations() const {
        const std::scoped_lock lock(mutex_);
        return activations_;
    }
    memory_use use_of(memory_category use) const {
        const std::scoped_lock lock(mutex_);
        return by_category_[static_cast<std::size_t>(use)];
    }
    memory_use total() const {
        const std::scoped_lock lock(mutex_);
        return total_;
    }

    /// Starts new peaks from what is live now.
    void reset_peaks() {
        const std::scoped_lock lock(mutex_);
        for (memory_use* use : uses()) use->peak = use->live;
    }

    /// The highest bytes during a part of a program, apart from the peaks of the whole.
    class peak_watch {
    public:
        explicit peak_watch(memory_pool& pool) : pool_(pool) {
            for (const memory_use* use : pool.uses()) before_.push_back(use->peak);
            pool.reset_peaks();
        }
        ~peak_watch() {
            const std::scoped_lock lock(pool_.mutex_);
            for (std::size_t i = 0; memory_use * use : pool_.uses()) use->peak = std::max(use->peak, before_[i++]);
        }
        peak_watch(const peak_watch&) = delete;
        peak_watch& operator=(const peak_watch&) = delete;
        index_t total() const { return pool_.total().peak; }

    private:
        memory_pool& pool_;
        std::vector<index_t> before_;
    };

    /// Highest total of live bytes allowed. Default: the memory of the machine, or CAIRN_MEMORY_LIMIT (bytes).
    void set_limit(index_t bytes) {
        const std::scoped_lock lock(mutex_);
        limit_ = bytes;
    }
    index_t limit() const { return std::min(limit_, own_limit_); }

    static constexpr index_t no_limit = std::numeric_limits<index_t>::max();
    /// Sets the limit of this pool alone, as a rank on a machine of its own would have it. Returns the one before.
    index_t set_own_limit(index_t bytes) {
        const std::scoped_lock lock(mutex_);
        return std::exchange(own_limit_, bytes);
    }

    /// From now on the calling thread's requests and releases are logged there; null: nowhere.
    void record_to(std::vector<memory_request>* requests) { noted_ = {requests ? this : nullptr, requests}; }

    /// Returns the pages of all free ranges to the system.
    void trim() {
        const std::scoped_lock lock(mutex_);
        for (const auto& [start, size] : free_.all()) {
            const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
            const auto first = (reinterpret_cast<std::uintptr_t>(start) + page - 1) / page * page;
            const auto last =
                (reinterpret_cast<std::uintptr_t>(start) + static_cast<std::uintptr_t>(size)) / page * page;
            if (last > first && start < touched_) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
        }
    }

    memory_pool(const memory_pool&) = delete;
    memory_pool& operator=(const memory_pool&) = delete;

protected:
    /// Over a range of addresses that is not backed yet. Messages name `what` it is and the variable that limits it.
    memory_pool(char* begin, index_t bytes, index_t limit, std::string what, const char* limit_name)
        : limit_(limit), begin_(begin), touched_(begin), what_(std::move(what)), limit_name_(limit_name) {
        free_.insert({begin, bytes});
    }
    virtual ~memory_pool() = default;
    void add_range(memory_range r) { free_.insert(r); }

    /// From now on each block of fewer bytes, by default of any number, is its own allocation.
    void use_system(index_t below = no_limit) { alone_below_ = below; }

    /// Makes the range usable up to `to`, called before anything beyond all earlier blocks is handed out; false where
    /// memory is out.
    virtual bool commit(char* /*to*/) { return true; }
    /// Whether a block may be [from, to), asked for every one.
    virtual bool may_hand_out(char* /*from*/, char* /*to*/) { return true; }
    /// A block by itself, for CAIRN_POOL=system: tools that check memory see its ends. Null where memory is out.
    virtual void* allocate_alone(index_t bytes) noexcept {
        return ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{alignment}, std::nothrow);
    }
    virtual void release_alone(void* block) noexcept { ::operator delete (block, std::align_val_t{alignment}); }
    /// Further text of an out-of-memory message.
    virtual std::string beside() const { return {}; }

    char* begin() const { return begin_; }
    char* touched_end() const { return touched_; }  // of all blocks so far

private:
    memory_pool() : of_host_(true) {
        const index_t physical = index_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
        limit_ = memory_limit_of_environment("CAIRN_MEMORY_LIMIT", physical);
        bool system = false;
#if defined(__SANITIZE_ADDRESS__)
        system = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
        system = true;
#endif
#endif
        if (const char* text = std::getenv("CAIRN_POOL")) system = std::string(text) == "system";
        system ? use_system() : reserve(4 * physical);
    }

    static memory_pool& of_process() {
        static memory_pool* pool =
            new memory_pool;  // never destroyed, so that tensors of static storage outlive nothing
        return *pool;
    }
    std::vector<memory_use*> uses() {
        std::vector<memory_use*> all{&total_, &activations_};
        for (memory_use& use : by_category_) all.push_back(&use);
        return all;
    }

    static bool is_activation(memory_category use) {
        return use == memory_category::activations || use == memory_category::saved;
    }

    static index_t rounded(index_t bytes) {
        return std::max<index_t>((bytes + alignment - 1) / alignment * alignment, alignment);
    }

    // Address space only; no page is used before it is written. Halved until the system agrees, else plain allocation.
    void reserve(index_t bytes) {
        for (; bytes >= index_t{1} << 28; bytes /= 2) {
            void* range = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (range == MAP_FAILED) continue;
            madvise(range, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
            begin_ = touched_ = static_cast<char*>(range);
            free_.insert({touched_, bytes});
            return;
        }
        use_system();
    }

    char* carve(index_t size, char* at) {
        const memory_range from = free_.with_room(size, at);
        if (from.bytes == 0) return nullptr;
        if (!at) at = from.begin;
        char* const end = at + size;
        if (!may_hand_out(at, end) || (end > touched_ && !commit(end))) return nullptr;
        free_.take(from, at, size);
        touched_ = std::max(touched_, end);
        return at;
    }

    [[noreturn]] void throw_out_of_memory(index_t size, memory_category use) const {
        std::string held;
        for (std::size_t i = 0; i < by_category_.size(); ++i)
            if (by_category_[i].live)
                held += concat(held.empty() ? "" : ", ", memory_category_names[i], ' ', by_category_[i].live);
        const auto asked = concat("out of ", what_, ": ", size, " bytes asked for ",
                                  memory_category_names[static_cast<std::size_t>(use)], ", ", total_.live, " held (",
                                  held.empty() ? "nothing" : held, ')');
        if (size > own_limit_ - total_.live)
            fail(asked, ", ", own_limit_,
                 " allowed to this rank; use a smaller batch, recomputation, more ranks, or raise its limit");
        fail(asked, of_host_ && host_live_ != total_.live ? concat(", ", host_live_.load(), " by all ranks") : "", ", ",
             limit_, " allowed", beside(), "; use a smaller batch, recomputation, or raise ", limit_name_);
    }

    struct notes {
        memory_pool* pool;
        std::vector<memory_request>* requests;
    };
    static inline thread_local notes noted_{};  // of this thread alone

    static inline thread_local memory_pool* current_ = nullptr;  // of the host; null: that of the process
    static inline std::atomic<index_t> host_live_{0};

    mutable std::recursive_mutex mutex_;
    cairn::free_ranges free_;
    std::array<memory_use, memory_category_names.size()> by_category_{};
    memory_use total_, activations_;
    index_t limit_ = 0, own_limit_ = no_limit;
    char* begin_ = nullptr;
    char* touched_ = nullptr;
    index_t alone_below_ = 0;  // bytes
    bool of_host_ = false;
    std::string what_ = "memory";
    const char* limit_name_ = "CAIRN_MEMORY_LIMIT";
};

/// f for a helper thread: it takes the host's memory from the caller's pool.
template <class F>
auto in_pool_of_caller(F f) {
    return [&pool = memory_pool::host(), f = std::move(f)]() mutable {
        const memory_pool::scope here(pool);
        return f();
    };
}

}  // namespace cairn
