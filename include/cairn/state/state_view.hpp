#pragma once
// The state of a run as a list of names and places in memory: tensors, numbers and texts. save_state reads this list,
// load_state writes it; it owns nothing but handles to tensors.
//
//   state_view state;
//   state.add("model", parameters.parameters());       // parameter_list
//   state.add("model", net.buffers());                 // buffer_list
//   state.add("optimizer", opt.tensors());             // list of {name, tensor}
//   state.add("optimizer/steps", opt.steps());         // a number
//   state.add("loader/position", position);            // must outlive the view

#include <cairn/core/parameter.hpp>
#include <cairn/core/tensor.hpp>

#include <array>
#include <concepts>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace cairn {

/// Type of the elements of an entry. The numbers are part of the file format: append only.
enum class element_type : std::uint8_t { float32, float64, bfloat16, int32, int64, uint8, uint32, uint64, text };

struct element_info {
    const char* name;
    std::size_t bytes;
};
inline constexpr std::array<element_info, 9> element_infos{{{"float32", 4},
                                                            {"float64", 8},
                                                            {"bfloat16", 2},
                                                            {"int32", 4},
                                                            {"int64", 8},
                                                            {"uint8", 1},
                                                            {"uint32", 4},
                                                            {"uint64", 8},
                                                            {"text", 1}}};

/// The element_type of T. bool counts as uint8.
template <class T>
constexpr element_type element_type_of() {
    if constexpr (std::same_as<T, float>)
        return element_type::float32;
    else if constexpr (std::same_as<T, double>)
        return element_type::float64;
    else if constexpr (std::same_as<T, bfloat16>)
        return element_type::bfloat16;
    else if constexpr (std::integral<T> && std::is_signed_v<T> && sizeof(T) == 4)
        return element_type::int32;
    else if constexpr (std::integral<T> && std::is_signed_v<T> && sizeof(T) == 8)
        return element_type::int64;
    else if constexpr (std::integral<T> && std::is_unsigned_v<T> && sizeof(T) == 1)
        return element_type::uint8;
    else if constexpr (std::integral<T> && std::is_unsigned_v<T> && sizeof(T) == 4)
        return element_type::uint32;
    else {
        static_assert(std::integral<T> && std::is_unsigned_v<T> && sizeof(T) == 8, "state: no element type for T");
        return element_type::uint64;
    }
}

/// Names and places of everything that is saved and restored together.
class state_view {
public:
    /// One named thing in memory.
    struct entry {
        std::string name;
        element_type type = element_type::float32;
        cairn::shape shape;
        void* data = nullptr;         // elements, or the std::string of a text
        std::shared_ptr<void> owner;  // keeps a tensor's block alive

        const void* bytes_begin() const { return type == element_type::text ? text().data() : data; }
        std::size_t bytes() const {
            return type == element_type::text
                       ? text().size()
                       : static_cast<std::size_t>(shape.size()) * element_infos[static_cast<std::size_t>(type)].bytes;
        }
        std::string& text() const { return *static_cast<std::string*>(data); }
    };

    /// A tensor; its block is kept alive. Throws when the name is taken, here and below.
    template <class T>
    void add(const std::string& name, const tensor<T, cpu>& t) {
        auto handle = std::make_shared<tensor<T, cpu>>(t.share());
        put({name, element_type_of<T>(), t.shape(), handle->data(), handle});
    }

    /// A number, of rank 0.
    template <class T>
        requires std::is_arithmetic_v<T>
    void add(const std::string& name, T& number) { put({name, element_type_of<T>(), {}, &number, nullptr}); }

    void add(const std::string& name, std::string& text) { put({name, element_type::text, {}, &text, nullptr}); }

    /// Parameter values, buffers, or any list of {name, t}, with "prefix/" in front of each name.
    template <class T>
    void add(const std::string& prefix, const parameter_list<T, cpu>& list) {
        for (const auto& [name, p] : list) add(prefix + '/' + name, p->value);
    }
    template <class T>
    void add(const std::string& prefix, const buffer_list<T, cpu>& list) {
        for (const auto& [name, t] : list) add(prefix + '/' + name, *t);
    }
    template <class Named>
        requires requires(const Named& n) { n.t.share(); }
    void add(const std::string& prefix, const std::vector<Named>& list) {
        for (const auto& [name, t] : list) add(prefix + '/' + name, t);
    }

    const std::vector<entry>& entries() const { return entries_; }

    /// Bytes of all entries.
    std::size_t bytes() const {
        std::size_t sum = 0;
        for (const entry& e : entries_) sum += e.bytes();
        return sum;
    }

private:
    void put(entry e) {
        require(names_.insert(e.name).second, "state: two entries are called ", e.name);
        entries_.push_back(std::move(e));
    }

    std::vector<entry> entries_;
    std::set<std::string> names_;
};

}  // namespace cairn
