#pragma once
// Python pickles of NumPy arrays, SciPy's compressed rows, lists and dictionaries, as Python 2 wrote them (protocol 2;
// pickletools.py says what each opcode does). A pickle is a program that may call any function of Python: this reader
// calls nothing. It builds a tree of plain nodes; the names that a file may mention are those of `pickle_names`, kept
// as text, and everything else is refused.

#include <cairn/data/bytes.hpp>
#include <cairn/data/npy.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cairn {

/// What a pickle may name: constructors of plain containers.
inline constexpr std::array<std::string_view, 8> pickle_names{
    "numpy.core.multiarray _reconstruct", "numpy ndarray",           "numpy dtype",      "scipy.sparse.csr csr_matrix",
    "scipy.sparse._csr csr_matrix",       "collections defaultdict", "__builtin__ list", "builtins list"};

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
        require(n.kind == node_kind::integer || n.kind == node_kind::boolean, name_, ": ", what,
                " is no whole number: damaged or another kind of file?");
        return n.number;
    }

    /// Numbers of a NumPy array. Throws unless n is one.
    npy_array array(const node& n) const {
        require(is_object(n, "multiarray _reconstruct") && n.state >= 0, name_,
                ": a NumPy array is expected in the pickle: another kind of file?");
        const node& state = (*this)[n.state];  // (version, shape, dtype, Fortran order, bytes)
        require(state.kind == node_kind::tuple && state.items.size() == 5, name_, ": the state of a NumPy array has ",
                state.items.size(), " parts, 5 are expected: damaged?");
        const auto part = [&](std::size_t i) -> const node& { return (*this)[state.items[i]]; };
        npy_array a;
        a.name = name_;
        std::vector<std::int64_t> extents;
        for (const int i : part(1).items) {
            extents.push_back(integer((*this)[i], "an extent of an array"));
            require(extents.back() >= 0 && extents.size() <= shape::max_rank, name_, ": an array of extent ",
                    extents.back(), " and ", extents.size(), " axes: damaged?");
        }
        const std::uint64_t count = checked_product(extents, most_elements, name_);
        a.shape = shape(extents);
        read_dtype(a, part(2));
        a.fortran = integer(part(3), "the order of an array") != 0;
        const std::string& bytes = part(4).text;
        require(part(4).kind == node_kind::text && bytes.size() == count * static_cast<std::uint64_t>(a.width), name_,
                ": an array of shape ", a.shape, " takes ", count * static_cast<std::uint64_t>(a.width), " bytes, ",
                bytes.size(), " are there: damaged?");
        a.bytes.assign(bytes.begin(), bytes.end());
        return a;
    }

private:
    friend class pickle_reader;

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

/// Reads a pickle; see the top of the file.
class pickle_reader {
public:
    static pickle_tree read(byte_span bytes, const std::string& name) {
        pickle_reader r(bytes, name);
        r.run();
        return std::move(r.tree_);
    }

private:
    using node_kind = pickle_tree::node_kind;
    using node = pickle_tree::node;
    static constexpr auto little = std::endian::little;

    pickle_reader(byte_span bytes, const std::string& name) : in_(bytes, name) { tree_.name_ = name; }

    void run() {
        while (true) {
            const auto op = static_cast<char>(in_.number<std::uint8_t>("an opcode", little));
            if (op == '.') break;
            step(op);
        }
        tree_.root_ = pop();
    }

    void step(char op) {
        switch (op) {
            case '\x80': {
                const int protocol = in_.number<std::uint8_t>("the protocol", little);
                in_.require_here(protocol >= 1 && protocol <= 3, "pickle protocol ", protocol, "; 1 to 3 are read");
                return;
            }
            case 'c':
                return push_name();
            case 'q':
                return memorise(in_.number<std::uint8_t>("a memo number", little));
            case 'r':
                return memorise(in_.number<std::uint32_t>("a memo number", little));
            case 'h':
                return recall(in_.number<std::uint8_t>("a memo number", little));
            case 'j':
                return recall(in_.number<std::uint32_t>("a memo number", little));
            case 'N':
                return push({.kind = node_kind::none});
            case '\x88':
            case '\x89':
                return push({.kind = node_kind::boolean, .number = op == '\x88'});
            case 'K':
                return push({.kind = node_kind::integer, .number = in_.number<std::uint8_t>("a number", little)});
            case 'M':
                return push({.kind = node_kind::integer, .number = in_.number<std::uint16_t>("a number", little)});
            case 'J':
                return push({.kind = node_kind::integer, .number = in_.number<std::int32_t>("a number", little)});
            case '\x8a':
                return push_long();
            case 'U':
            case 'C':
                return push_text(in_.number<std::uint8_t>("a string's length", little));
            case 'T':
            case 'B':
            case 'X':
                return push_text(in_.number<std::uint32_t>("a string's length", little));
            case '(':
                marks_.push_back(stack_.size());
                return;
            case ')':
                return push({.kind = node_kind::tuple});
            case ']':
                return push({.kind = node_kind::list});
            case '}':
                return push({.kind = node_kind::dictionary});
            case 't':
                return push({.kind = node_kind::tuple, .items = pop_to_mark()});
            case '\x85':
            case '\x86':
            case '\x87':
                return push({.kind = node_kind::tuple, .items = pop_last(static_cast<std::size_t>(op - '\x84'))});
            case 'a':
                return append({pop()}, node_kind::list);
            case 'e':
                return append(pop_to_mark(), node_kind::list);
            case 's':
                return append(pop_last(2), node_kind::dictionary);
            case 'u':
                return append(pop_to_mark(), node_kind::dictionary);
            case 'R':
            case '\x81':
                return make_object();
            case 'b':
                return build();
            default:
                in_.fail_here(
                    "opcode ", static_cast<int>(static_cast<std::uint8_t>(op)),
                    " of a pickle, which arrays, lists and dictionaries do not need: damaged, or another kind "
                    "of file");
        }
    }

    void push(node n) {
        stack_.push_back(static_cast<int>(tree_.nodes_.size()));
        tree_.nodes_.push_back(std::move(n));
    }
    int pop() { return pop_last(1)[0]; }
    std::vector<int> pop_last(std::size_t n) {
        const std::size_t floor = marks_.empty() ? 0 : marks_.back();
        in_.require_here(stack_.size() >= floor + n, "the pickle takes what it did not put there: damaged?");
        std::vector<int> items(stack_.end() - static_cast<std::ptrdiff_t>(n), stack_.end());
        stack_.resize(stack_.size() - n);
        return items;
    }
    std::vector<int> pop_to_mark() {
        in_.require_here(!marks_.empty(), "the pickle ends what it did not begin: damaged?");
        std::vector<int> items = pop_last(stack_.size() - marks_.back());
        marks_.pop_back();
        return items;
    }
    node& top() {
        in_.require_here(!stack_.empty() && (marks_.empty() || stack_.size() > marks_.back()),
                         "the pickle changes what it did not put there: damaged?");
        return tree_.nodes_[static_cast<std::size_t>(stack_.back())];
    }

    void memorise(std::uint32_t number) {
        top();
        memo_[number] = stack_.back();
    }
    void recall(std::uint32_t number) {
        const auto found = memo_.find(number);
        in_.require_here(found != memo_.end(), "the pickle recalls number ", number,
                         ", which it did not keep: damaged?");
        stack_.push_back(found->second);
    }

    void push_text(std::uint64_t length) {
        const byte_span s = in_.take(length, "a string");
        push({.kind = node_kind::text, .text = std::string(s.begin(), s.end())});
    }
    void push_long() {  // little-endian, two's complement
        const std::uint64_t length = in_.number<std::uint8_t>("a number's length", little);
        in_.require_here(length <= 8, "a whole number of ", length, " bytes; 8 are read");
        const byte_span s = in_.take(length, "a number");
        std::uint64_t value = !s.empty() && (s.back() & 0x80) ? ~std::uint64_t{0} : 0;
        for (std::size_t i = s.size(); i-- > 0;) value = value << 8 | s[i];
        push({.kind = node_kind::integer, .number = static_cast<std::int64_t>(value)});
    }
    void push_name() {
        std::string text;
        for (int line = 0; line < 2; ++line) {
            if (line) text += ' ';
            while (true) {
                const char c = static_cast<char>(in_.number<std::uint8_t>("a name", little));
                if (c == '\n') break;
                in_.require_here(text.size() < 200, "a name that does not end: damaged?");
                text += c;
            }
        }
        in_.require_here(std::find(pickle_names.begin(), pickle_names.end(), text) != pickle_names.end(),
                         "the pickle names '", text,
                         "', which is neither an array nor a list or dictionary; pickles can run programs, this one is "
                         "not read. Save numbers as .npz");
        push({.kind = node_kind::name, .text = std::move(text)});
    }

    void append(std::vector<int> items, node_kind wanted) {
        node& to = top();
        in_.require_here(to.kind == wanted || (to.kind == node_kind::object && wanted == node_kind::dictionary),
                         "the pickle appends to what is no list or dictionary: damaged?");
        in_.require_here(wanted != node_kind::dictionary || items.size() % 2 == 0, "a key without a value: damaged?");
        to.items.insert(to.items.end(), items.begin(), items.end());
    }
    void make_object() {
        const std::vector<int> parts = pop_last(2);
        in_.require_here(tree_[parts[0]].kind == node_kind::name && tree_[parts[1]].kind == node_kind::tuple,
                         "the pickle makes an object of what is no name and tuple: damaged?");
        push({.kind = node_kind::object, .maker = parts[0], .arguments = parts[1]});
    }
    void build() {
        const int state = pop();
        node& object = top();
        in_.require_here(object.kind == node_kind::object, "the pickle fills what is no object: damaged?");
        object.state = state;
    }

    byte_reader in_;
    pickle_tree tree_;
    std::vector<int> stack_;
    std::vector<std::size_t> marks_;
    std::unordered_map<std::uint32_t, int> memo_;
};

/// Takes a pickle apart that is already in memory. Throws on anything that is not one of arrays, lists and
/// dictionaries.
inline pickle_tree parse_pickle(byte_span bytes, const std::string& name) { return pickle_reader::read(bytes, name); }

}  // namespace cairn
