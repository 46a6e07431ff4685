#pragma once
// Per-step parameters of captured kernels (core/captured_graph.hpp): learning rates, counts of steps. Kernels read them
// in the device's memory, to which the host copies them ahead of the launches.
//
//   launch_parameter_buffer<D> numbers;
//   each step:   numbers.collect();  a = numbers.place(value);  …    // values of this step; nothing is launched yet
//                numbers.send();                                     // one asynchronous copy, in stream order
//                numbers.launch();   a = numbers.place(value);  …    // the same places, as addresses for kernels
// Captured launches keep their addresses: later steps need the first two lines alone. The device reads the host's
// memory later than send() returns, so steps take turns in slots, and a slot is rewritten once its copy is done.
// Memory traffic: the bytes of the values, once a step.

#include <cairn/core/device_scalar.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace cairn {

/// See the top of the file: the places, on any device.
class launch_parameters {
public:
    launch_parameters() = default;
    launch_parameters(const launch_parameters&) = delete;
    launch_parameters& operator=(const launch_parameters&) = delete;

    /// Whether places are addresses for launches. Otherwise values are collected, and addresses mean nothing.
    bool launching() const { return launching_; }

    /// Device address of `value` of the current step. Throws unless places are requested in the order of collection.
    template <class T>
    const T* place(const T& value) {
        return place(std::span<const T>(&value, 1));
    }
    /// The same of several, side by side.
    template <class T>
    const T* place(std::span<const T> values) {
        static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 16, "a device gets its bytes");
        const std::size_t begin = (next_ + alignof(T) - 1) / alignof(T) * alignof(T);
        next_ = begin + values.size_bytes();
        if (launching_) {
            require(next_ <= bytes_.size(), "numbers of a step: bytes ", begin, " to ", next_,
                    " are asked for by launches, but ", bytes_.size(), " were sent: other launches than last time");
        } else {
            bytes_.resize(next_);
            if (!values.empty()) std::memcpy(bytes_.data() + begin, values.data(), values.size_bytes());
        }
        return reinterpret_cast<const T*>(there_ + begin);
    }

    /// End of the places so far: launch() continues from there.
    std::size_t position() const { return next_; }

    /// A new step: what is placed from now on are its values.
    void collect() {
        launching_ = false;
        next_ = 0;
        bytes_.clear();
    }
    /// From now on places are addresses for launches, from the beginning or from a position of the collection.
    void launch(std::size_t position = 0) {
        launching_ = true;
        next_ = position;
    }

protected:
    const std::vector<std::byte>& bytes() const { return bytes_; }
    void are_at(std::uintptr_t there) { there_ = there; }

private:
    bool launching_ = false;
    std::size_t next_ = 0;
    std::vector<std::byte> bytes_;  // of this step
    std::uintptr_t there_ = 0;      // where the device has them
};

/// A device with asynchronous copies from host_memory(), in stream order.
///   D::begin_copy_to_device(to, from, bytes)      `from` may be rewritten after finish() of the returned object
template <class D>
concept CopiesIn = Device<D> && requires(void* to) {
    D::host_memory();
    D::begin_copy_to_device(to, to, index_t{1}).finish();
};

/// See the top of the file. All calls come from the thread that launches.
template <CopiesIn D>
class launch_parameter_buffer : public launch_parameters {
public:
    launch_parameter_buffer() = default;
    ~launch_parameter_buffer() {
        for (slot& s : slots_) try {
                if (s.copy) s.copy->finish();  // both ends of the copies live until here
            } catch (const error&) {           // the next launch or wait reports it
            }
    }

    /// Sends the collected values, for all later launches. Throws if their size differs from earlier steps.
    void send() {
        const auto size = static_cast<index_t>(bytes().size());
        if (there_.empty()) {
            there_ = tensor<std::uint8_t, D>({std::max<index_t>(size, 1)}, memory_category::workspace, D::memory());
            for (slot& s : slots_)
                s.here = tensor<std::uint8_t, cpu>({there_.size()}, memory_category::workspace, D::host_memory());
            size_ = size;
            are_at(reinterpret_cast<std::uintptr_t>(there_.data()));
        }
        require(size == size_, "numbers of a step: ", size, " bytes, but ", size_, " in the first one");
        slot& s = slots_[next_slot_];
        next_slot_ = (next_slot_ + 1) % slots_.size();
        if (s.copy) s.copy->finish();
        if (size == 0) return;
        std::memcpy(s.here.data(), bytes().data(), bytes().size());
        s.copy.emplace(D::begin_copy_to_device(there_.data(), s.here.data(), size));
    }

private:
    using moment = decltype(D::begin_copy_to_device(nullptr, nullptr, index_t{}));
    struct slot {
        tensor<std::uint8_t, cpu> here;
        std::optional<moment> copy;  // the last one from here
    };

    tensor<std::uint8_t, D> there_;
    std::array<slot, 3> slots_;
    std::size_t next_slot_ = 0;
    index_t size_ = 0;
};

}  // namespace cairn
