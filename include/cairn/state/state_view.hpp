#pragma once
// The state of a run as a list of names and places in memory: tensors, numbers and texts, or the pieces of them that
// this rank has (piece.hpp). save_state and packs (pack.hpp) read this list, load_state and versions write it; it owns
// nothing but handles to tensors.
//
//   state_view state;
//   state.add("model", parameters.parameters());       // parameter_list
//   state.add("model", net.buffers());                 // buffer_list
//   state.add("optimizer", opt.tensors());             // list of {name, tensor}
//   state.add("optimizer/steps", opt.steps());         // a number
//   state.add("loader/position", position);            // must outlive the view
//   state.add("model/table", slice, {.where = piece{{512, 64}, {128}, {64, 64}, 0, 4096}, .share = {1, 4}});

#include <cairn/core/parameter.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/state/piece.hpp>

#include <array>
#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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

/// "float32 (3, 4)"
inline std::string type_text(element_type type, const shape& s) {
    return concat(element_infos[static_cast<std::size_t>(type)].name, ' ', s);
}

/// Lists what differs between a saved state and a program: the first eight in words, then how many more.
class state_differences {
public:
    explicit state_differences(std::string between = "; ") : between_(std::move(between)) {}

    template <class... Parts>
    void add(const Parts&... what) {
        if (++count_ <= most) text_ += concat(count_ > 1 ? between_ : "", what...);
    }
    bool none() const { return count_ == 0; }
    /// "" where there are none.
    std::string text() const { return count_ > most ? concat(text_, between_, "and ", count_ - most, " more") : text_; }

private:
    static constexpr int most = 8;
    std::string between_, text_;
    int count_ = 0;
};

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

/// Of the ranks that have the same piece, which one this is: each writes its share; `of` = 0: another one does.
struct piece_share {
    int index = 0, of = 1;
    bool operator==(const piece_share&) const = default;
};

/// Reading of a tensor whose first axis is that of ranks, a row each, where the number of rows is another than it was
/// when the state was saved: an error; each gets the mean of all; each gets an equal part of the sum.
enum class row_change { refused, mean, sum };

/// What a state knows of a tensor besides its name.
struct piece_info {
    std::optional<piece> where = {};  // unset: the tensor is the whole
    piece_share share = {};
    row_change rows = row_change::refused;
    bool optional = false;  // a saved state may be without it: it stays as it is
    bool alike = false;     // the ranks that share it hold the same bits: a version compares their digests
};

/// Names and places of everything that is saved and restored together.
class state_view {
public:
    /// One named thing in memory, whole or in part.
    struct entry {
        std::string name;
        element_type type = element_type::float32;
        piece where;
        void* data = nullptr;         // the elements of the piece, or the std::string of a text
        std::shared_ptr<void> owner;  // keeps a tensor's block alive
        piece_share share = {};
        row_change rows = row_change::refused;
        bool optional = false;
        bool alike = false;

        const void* bytes_begin() const { return type == element_type::text ? text().data() : data; }
        std::size_t element_bytes() const { return element_infos[static_cast<std::size_t>(type)].bytes; }
        std::size_t bytes() const {
            return type == element_type::text ? text().size() : static_cast<std::size_t>(where.count) * element_bytes();
        }
        std::string& text() const { return *static_cast<std::string*>(data); }
    };

    /// A tensor, or a piece of one; its block is kept alive. Throws when the name is taken, here and below, and where
    /// the tensor has not as many elements as the piece.
    template <class T>
    void add(const std::string& name, const tensor<T, cpu>& t, piece_info info = {}) {
        auto handle = std::make_shared<tensor<T, cpu>>(t.share());
        const piece where = info.where ? *info.where : piece::whole(t.shape());
        require(where.fits() && where.count == t.size(), "state: ", name, " has ", t.size(), " elements, but is to be ",
                where);
        put({name, element_type_of<T>(), where, handle->data(), handle, info.share, info.rows, info.optional,
             info.alike});
    }

    /// A number, of rank 0.
    template <class T>
        requires std::is_arithmetic_v<T>
    void add(const std::string& name, T& number, piece_info info = {}) {
        put({name, element_type_of<T>(), piece::whole({}), &number, nullptr, info.share, info.rows, info.optional});
    }

    void add(const std::string& name, std::string& text, piece_info info = {}) {
        put({name, element_type::text, piece::whole({}), &text, nullptr, info.share, info.rows, info.optional});
    }

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

    /// An entry of another view.
    void add(entry e) { put(std::move(e)); }

    const std::vector<entry>& entries() const { return entries_; }

    /// Bytes of all entries.
    std::size_t bytes() const {
        std::size_t sum = 0;
        for (const entry& e : entries_) sum += e.bytes();
        return sum;
    }

private:
    // A tensor may be there in several parts.
    void put(entry e) {
        const auto [at, is_new] = names_.emplace(e.name, e.where.is_whole());
        require(is_new || !(at->second || e.where.is_whole()), "state: two entries are called ", e.name);
        entries_.push_back(std::move(e));
    }

    std::vector<entry> entries_;
    std::map<std::string, bool> names_;  // whether the entry is a whole tensor
};

}  // namespace cairn
