#pragma once
// Contents of a pickle (data/pickle.hpp) as a tree of plain nodes, and NumPy's arrays and numbers from them.
//   array: _reconstruct(…) with the state (version, shape, dtype, Fortran order, bytes); by protocol 5
//          _frombuffer(bytes, dtype, shape, order)     number: scalar(dtype, bytes)

#include <cairn/data/npy.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace cairn {

/// A pickle as a tree. Nodes refer to each other by number; one may have several parents.
class pickle_tree {
public:
    enum class node_kind { none, boolean, integer, text, tuple, list, dictionary, name, object };
    struct node {
        node_kind kind = node_kind::none;
        std::int64_t number = 0;                     // boolean, integer
        std::string text = {};                       // bytes or text; of a name, "module name"
        std::vector<int> items = {};                 // of a dictionary and an object key, value, key, value …
        int maker = -1, arguments = -1, state = -1;  // of an object: a name, a tuple, what BUILD gave it
    };

    const node& operator[](int i) const { return nodes_[static_cast<std::size_t>(i)]; }
    const node& root() const { return (*this)[root_]; }
    const std::string& name() const { return name_; }

    /// Whether n is an object made by a function whose name ends so.
    bool is_object(const node& n, std::string_view ending) const {
        return n.kind == node_kind::object && (*this)[n.maker].text.ends_with(ending);
    }
    bool is_array(const node& n) const {
        return is_object(n, "multiarray _reconstruct") || is_object(n, "numeric _frombuffer");
    }
    /// The value of a key of a dictionary; throws where it is missing.
    const node& at(const node& dictionary, std::string_view key) const {
        for (std::size_t i = 0; i + 1 < dictionary.items.size(); i += 2)
            if ((*this)[dictionary.items[i]].text == key) return (*this)[dictionary.items[i + 1]];
        fail(name_, ": no '", key, "' in the pickled object: another kind of file?");
    }
    bool has(const node& dictionary, std::string_view key) const {
        for (std::size_t i = 0; i + 1 < dictionary.items.size(); i += 2)
            if ((*this)[dictionary.items[i]].text == key) return true;
        return false;
    }
    /// A whole number, or throws naming `what` it should be.
    std::int64_t integer(const node& n, const char* what) const {
        if (is_object(n, "multiarray scalar")) {  // (dtype, bytes)
            const std::vector<int>& parts = (*this)[n.arguments].items;
            require(parts.size() == 2, name_, ": a NumPy number of ", parts.size(), " parts, 2 are expected: damaged?");
            return array_of({}, (*this)[parts[0]], false, (*this)[parts[1]]).to_tensor<std::int64_t>()[0];
        }
        require(n.kind == node_kind::integer || n.kind == node_kind::boolean, name_, ": ", what,
                " is no whole number: damaged or another kind of file?");
        return n.number;
    }

    /// Numbers of a NumPy array. Throws unless n is one.
    npy_array array(const node& n) const {
        require(is_array(n), name_, ": a NumPy array is expected in the pickle: another kind of file?");
        const bool buffer = is_object(n, "_frombuffer");  // (bytes, dtype, shape, order)
        require(buffer || n.state >= 0, name_, ": a NumPy array without its state: damaged?");
        const node& state = (*this)[buffer ? n.arguments : n.state];  // (version, shape, dtype, Fortran order, bytes)
        const std::size_t expected = buffer ? 4 : 5;
        require(state.kind == node_kind::tuple && state.items.size() == expected, name_,
                ": the state of a NumPy array has ", state.items.size(), " parts, ", expected,
                " are expected: damaged?");
        const auto part = [&](std::size_t i) -> const node& { return (*this)[state.items[i]]; };
        return buffer ? array_of(part(2).items, part(1), part(3).text == "F", part(0))
                      : array_of(part(1).items, part(2), integer(part(3), "the order of an array") != 0, part(4));
    }

private:
    friend class pickle_reader;

    npy_array array_of(const std::vector<int>& shape_items, const node& dtype, bool fortran,
                       const node& elements) const {
        npy_array a;
        a.name = name_;
        std::vector<std::int64_t> extents;
        for (const int i : shape_items) {
            require((*this)[i].kind == node_kind::integer, name_, ": an extent of an array is no number: damaged?");
            extents.push_back((*this)[i].number);
            require(extents.back() >= 0 && extents.size() <= shape::max_rank, name_, ": an array of extent ",
                    extents.back(), " and ", extents.size(), " axes: damaged?");
        }
        const std::uint64_t count = checked_product(extents, most_elements, name_);
        a.shape = shape(extents);
        read_dtype(a, dtype);
        a.fortran = fortran;
        const std::string& bytes = elements.text;
        require(elements.kind == node_kind::text && bytes.size() == count * static_cast<std::uint64_t>(a.width), name_,
                ": an array of shape ", a.shape, " takes ", count * static_cast<std::uint64_t>(a.width), " bytes, ",
                bytes.size(), " are there: damaged?");
        a.bytes.assign(bytes.begin(), bytes.end());
        return a;
    }

    void read_dtype(npy_array& a, const node& n) const {
        require(is_object(n, "numpy dtype") && n.state >= 0 && n.arguments >= 0 &&
                    !(*this)[n.arguments].items.empty() && (*this)[n.state].items.size() >= 2,
                name_, ": an array without a type of its elements: damaged?");
        const std::string& type = (*this)[(*this)[n.arguments].items[0]].text;
        const std::string& order = (*this)[(*this)[n.state].items[1]].text;
        const std::size_t width = type.size() == 2 ? static_cast<std::size_t>(type[1] - '0') : 0;
        const bool known = (width == 1 && (type[0] == 'b' || type[0] == 'i' || type[0] == 'u')) ||
                           ((width == 2 || width == 4 || width == 8) && (type[0] == 'i' || type[0] == 'u')) ||
                           ((width == 4 || width == 8) && type[0] == 'f');
        require(known, name_, ": elements of type '", type, "'; f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 are read");
        a.kind = type[0];
        a.width = static_cast<int>(width);
        a.order = order == ">" ? std::endian::big : std::endian::little;
    }

    std::vector<node> nodes_;
    int root_ = 0;
    std::string name_;
};

}  // namespace cairn
