#pragma once
// A tensor: a shape, a pointer, and a share in the block of memory that the pointer lies in. Row-major, contiguous,
// aligned to 64 bytes, channels last. Moving is cheap; copying is always spelled out:
//   t.share()  another handle to the same elements (saved tensors keep an activation this way: one block, two
//              owners)
//   t.clone()  new elements
// A device is a tag type with `static pool& memory()`; the elements of a cpu tensor can be read here and now.

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/compiled.hpp>
#include <cairn/core/memory.hpp>
#include <cairn/core/phantom.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <concepts>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

namespace cairn {

/// The host processor. Copies and sets bytes as every device does; those of phantom ranks stay what they are.
struct cpu {
    static constexpr const char* name = "cpu";
    static memory_pool& memory() { return memory_pool::host(); }
    static void copy_within(void* to, const void* from, index_t bytes) {
        if (bytes <= 0 || phantom_range::holds(to) || phantom_range::holds(from)) return;
        std::memmove(to, from, static_cast<std::size_t>(bytes));
    }
    static void copy_to_device(void* to, const void* from, index_t bytes) { copy_within(to, from, bytes); }
    static void copy_to_host(void* to, const void* from, index_t bytes) { copy_within(to, from, bytes); }
    static void set_bytes(void* to, int value, index_t bytes) {
        if (bytes > 0 && !phantom_range::holds(to)) std::memset(to, value, static_cast<std::size_t>(bytes));
    }
    static void wait() {}
};

template <class D>
concept Device = requires(void* at, index_t bytes) {
    D::memory().allocate(bytes, memory_category::activations);
    D::copy_to_device(at, at, bytes);
    D::copy_to_host(at, at, bytes);  // waits for what was launched
};

/// Pool of the calling thread's tensors on D, in place of D's own; null: D's own.
template <Device D>
inline constinit thread_local memory_pool* pool_instead = nullptr;

namespace detail {

/// Gives a block of memory back to its pool.
struct block_owner {
    memory_pool* pool;
    index_t bytes;
    memory_category use;
    int saved = 0;  // places of saved_tensors that hold it

    void operator()(void* block) const { pool->release(block, bytes, use); }

    void count(memory_category as) {
        pool->recount(bytes, use, as);
        use = as;
    }
};

}  // namespace detail

/// Owning, row-major array of T on device D.
template <class T, Device D = cpu>
class tensor {
public:
    using value_type = T;
    using device = D;

    tensor() = default;

    /// Uninitialised elements. Throws when memory is out.
    explicit tensor(cairn::shape s, memory_category use = memory_category::activations)
        : tensor(s, use, pool()) {}  // of this thread's GPU now; any thread may release it

    /// Uninitialised elements from another pool of memory that D can use.
    tensor(cairn::shape s, memory_category use, memory_pool& pool) : shape_(s) {
        const index_t bytes = std::max<index_t>(s.size(), 1) * static_cast<index_t>(sizeof(T));
        data_ = static_cast<T*>(pool.allocate(bytes, use));
        block_ = std::shared_ptr<void>(data_, detail::block_owner{&pool, bytes, use});
    }

    /// Elements all equal to `value`.
    static tensor filled(cairn::shape s, T value, memory_category use = memory_category::activations) {
        tensor t(s, use);
        if constexpr (std::same_as<D, cpu>) {  // in place, without a copy
            if (!phantom_range::holds(t.data())) std::fill_n(t.data(), t.size(), value);
        } else
            D::copy_to_device(t.data(), tensor<T, cpu>::filled(s, value).data(), t.bytes());
        return t;
    }
    static tensor zeros(cairn::shape s, memory_category use = memory_category::activations) {
        tensor t(s, use);
        D::set_bytes(t.data(), 0, t.bytes());
        return t;
    }
    /// The elements of a tensor of the host.
    static tensor copy_of(const tensor<T, cpu>& host, memory_category use = memory_category::activations) {
        tensor t(host.shape(), use);
        D::copy_to_device(t.data(), host.data(), t.bytes());
        return t;
    }

    /// A tensor over memory that another object keeps alive.
    static tensor view(T* data, cairn::shape s) {
        tensor t;
        t.data_ = data;
        t.shape_ = s;
        return t;
    }

    tensor(tensor&& other) noexcept { *this = std::move(other); }
    tensor& operator=(tensor&& other) noexcept {
        block_ = std::exchange(other.block_, nullptr);
        data_ = std::exchange(other.data_, nullptr);
        shape_ = std::exchange(other.shape_, cairn::shape{0});
        return *this;
    }
    tensor(const tensor&) = delete;
    tensor& operator=(const tensor&) = delete;

    /// Another handle to the same elements.
    tensor share() const {
        tensor t;
        t.block_ = block_;
        t.data_ = data_;
        t.shape_ = shape_;
        return t;
    }

    /// New elements with the same values.
    tensor clone(memory_category use = memory_category::activations) const {
        tensor t(shape_, use);
        D::copy_within(t.data_, data_, bytes());
        return t;
    }

    /// New elements with the same values, on the host.
    tensor<T, cpu> on_host(memory_category use = memory_category::activations) const {
        tensor<T, cpu> t(shape_, use);
        D::copy_to_host(t.data(), data_, bytes());
        return t;
    }

    /// The same elements under another shape of equal size. Throws otherwise.
    tensor reshaped(cairn::shape s) const {
        require(s.size() == size(), "reshape: ", shape_, " has ", size(), " elements, ", s, " has ", s.size());
        tensor t = share();
        t.shape_ = s;
        return t;
    }

    /// Elements [begin, begin + s.size()) of this tensor in memory order, as a tensor of cairn::shape s that shares the
    /// block.
    tensor slice(index_t begin, cairn::shape s) const {
        require(begin >= 0 && begin + s.size() <= size(), "slice: elements ", begin, " to ", begin + s.size(), " of ",
                size());
        tensor t = share();
        t.data_ += begin;
        t.shape_ = s;
        return t;
    }

    /// An activation counts as memory_category::saved from the first hold() until let_go() was called as often. Other
    /// categories do not change.
    void hold() const {
        auto* const block = std::get_deleter<detail::block_owner>(block_);
        if (!block || (block->use != memory_category::activations && block->use != memory_category::saved)) return;
        if (block->saved++ == 0) block->count(memory_category::saved);
    }
    void let_go() const {
        auto* const block = std::get_deleter<detail::block_owner>(block_);
        if (block && block->saved > 0 && --block->saved == 0) block->count(memory_category::activations);
    }

    /// Drops this handle; the block goes back to the pool with its last owner.
    void reset() { *this = tensor{}; }

    /// Whether this is the only handle to its block, so that its elements may be overwritten.
    bool unique() const { return block_.use_count() == 1; }

    bool empty() const { return data_ == nullptr; }
    const cairn::shape& shape() const { return shape_; }
    int rank() const { return shape_.rank(); }
    index_t extent(int axis) const { return shape_[axis]; }
    index_t size() const { return data_ ? shape_.size() : 0; }
    index_t bytes() const { return size() * static_cast<index_t>(sizeof(T)); }

    T* data() { return data_; }
    const T* data() const { return data_; }
    std::span<T> span() { return {data_, static_cast<std::size_t>(size())}; }
    std::span<const T> span() const { return {data_, static_cast<std::size_t>(size())}; }
    T& operator[](index_t i) { return data_[i]; }
    const T& operator[](index_t i) const { return data_[i]; }

    /// Element at a full position, t(n, h, w, c). No bounds check: hot loops use data().
    template <std::convertible_to<index_t>... Position>
    T& operator()(Position... position) {
        return data_[offset({static_cast<index_t>(position)...})];
    }
    template <std::convertible_to<index_t>... Position>
    const T& operator()(Position... position) const {
        return data_[offset({static_cast<index_t>(position)...})];
    }

private:
    static memory_pool& pool() { return pool_instead<D> ? *pool_instead<D> : D::memory(); }

    index_t offset(std::initializer_list<index_t> position) const {
        index_t at = 0;
        int axis = 0;
        for (index_t p : position) at = at * shape_[axis++] + p;
        return at;
    }

    std::shared_ptr<void> block_;
    T* data_ = nullptr;
    cairn::shape shape_{0};
};

/// t in the host's memory: on the host t itself, else a copy.
template <class T, class D>
tensor<T> host_side(const tensor<T, D>& t, memory_category use = memory_category::workspace) {
    if constexpr (std::same_as<D, cpu>)
        return t.share();
    else
        return t.on_host(use);
}

/// The host's t in D's memory: on the host t itself, else a copy; an empty tensor of an empty one.
template <Device D, class T>
tensor<T, D> device_side(const tensor<T>& t, memory_category use) {
    if constexpr (std::same_as<D, cpu>)
        return t.share();
    else
        return t.empty() ? tensor<T, D>{} : tensor<T, D>::copy_of(t, use);
}

/// Throws unless t has the shape `expected`; `what` names the tensor in the message.
template <class T, class D>
void require_shape(const tensor<T, D>& t, const shape& expected, const char* what) {
    require(t.shape() == expected, what, " has shape ", t.shape(), ", expected ", expected);
}

// Sums of floats are doubles.
CAIRN_COMPILED_ONCE(layers_float, class tensor<float, cpu>)
CAIRN_COMPILED_ONCE(layers_float, class tensor<double, cpu>)

}  // namespace cairn
