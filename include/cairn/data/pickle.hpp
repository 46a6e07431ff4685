#pragma once
// Python pickles of NumPy arrays, SciPy's compressed rows, lists and dictionaries, of protocols 0 to 5 (pickletools.py
// says what each opcode does), by Python 2 and 3, NumPy 1 and 2. A pickle is a program that may call any function of
// Python: this reader calls nothing. It builds a tree of plain nodes (data/pickle_tree.hpp); the names that a file may
// mention are those of `pickle_names`, kept as text, and everything else is refused.

#include <cairn/data/bytes.hpp>
#include <cairn/data/pickle_tree.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cairn {

/// Names that a pickle may use: constructors of plain containers, numbers and bytes.
inline constexpr std::array<std::string_view, 20> pickle_names{"numpy.core.multiarray _reconstruct",
                                                               "numpy.core.multiarray scalar",
                                                               "numpy.core.numeric _frombuffer",
                                                               "numpy._core.multiarray _reconstruct",
                                                               "numpy._core.multiarray scalar",
                                                               "numpy._core.numeric _frombuffer",
                                                               "numpy ndarray",
                                                               "numpy dtype",
                                                               "scipy.sparse.csr csr_matrix",
                                                               "scipy.sparse._csr csr_matrix",
                                                               "scipy.sparse._csr csr_array",
                                                               "collections defaultdict",
                                                               "__builtin__ list",
                                                               "builtins list",
                                                               "__builtin__ object",
                                                               "builtins object",
                                                               "__builtin__ bytes",
                                                               "copy_reg _reconstructor",
                                                               "_codecs encode",
                                                               "scipy.sparse._arrays csr_array"};

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
                in_.require_here(protocol <= 5, "pickle protocol ", protocol, "; 0 to 5 are read");
                return;
            }
            case '\x95':  // a frame: what follows is read as it comes
                in_.take(8, "a frame");
                return;
            case 'c': {
                const std::string module = line();
                return push_name(module, line());
            }
            case '\x93': {
                const std::vector<int> words = pop_last(2);
                return push_name(tree_[words[0]].text, tree_[words[1]].text);
            }
            case '\x94':
                return memorise(static_cast<std::uint32_t>(memo_.size()));
            case 'p':
                return memorise(line_number<std::uint32_t>(line()));
            case 'g':
                return recall(line_number<std::uint32_t>(line()));
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
            case 'I':
            case 'L': {
                std::string digits = line();
                if (digits == "00" || digits == "01")
                    return push({.kind = node_kind::boolean, .number = digits == "01"});
                if (digits.ends_with('L')) digits.pop_back();
                return push({.kind = node_kind::integer, .number = line_number<std::int64_t>(digits)});
            }
            case 'S':
            case 'V':
                return push({.kind = node_kind::text, .text = unescaped(line(), op == 'S')});
            case 'U':
            case 'C':
            case '\x8c':
                return push_text(in_.number<std::uint8_t>("a string's length", little));
            case 'T':
            case 'B':
            case 'X':
                return push_text(in_.number<std::uint32_t>("a string's length", little));
            case '\x8d':
            case '\x8e':
            case '\x96':
                return push_text(in_.number<std::uint64_t>("a string's length", little));
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
            case 'l':
                return push({.kind = node_kind::list, .items = pop_to_mark()});
            case 'd': {
                std::vector<int> items = pop_to_mark();
                push({.kind = node_kind::dictionary});
                return append(std::move(items), node_kind::dictionary);
            }
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
    std::string line() {
        std::string text;
        while (true) {
            const char c = static_cast<char>(in_.number<std::uint8_t>("a line", little));
            if (c == '\n') return text;
            text += c;
        }
    }
    template <class T>
    T line_number(const std::string& digits) {
        T value = 0;
        const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        in_.require_here(failure == std::errc{} && end == digits.data() + digits.size(), "'", digits.substr(0, 40),
                         "' is no whole number of ", sizeof(T), " bytes: damaged?");
        return value;
    }
    // A line of protocol 0: a quoted string of bytes as Python 2 prints it, or text whose characters are bytes of
    // Latin-1 and \uXXXX, which becomes UTF-8.
    std::string unescaped(std::string_view line, bool bytes) {
        if (bytes) {
            in_.require_here(line.size() >= 2 && line.front() == line.back(), "a string without quotes: damaged?");
            line = line.substr(1, line.size() - 2);
        }
        constexpr std::string_view letters = "ntr\\'\"", meant = "\n\t\r\\'\"";
        std::string out;
        while (!line.empty()) {
            unsigned code = static_cast<std::uint8_t>(line.front());
            std::size_t used = 1;
            if (line.front() == '\\') {
                const char kind = line.size() > 1 ? line[1] : '\0';
                const auto letter = bytes ? letters.find(kind) : std::string_view::npos;
                const std::size_t digits = kind == (bytes ? 'x' : 'u') ? (bytes ? 2 : 4) : 0;
                used = 2 + digits;
                in_.require_here(line.size() >= used && (digits > 0 || letter < letters.size()),
                                 "an escape of a string that is not read: damaged?");
                if (digits)
                    in_.require_here(
                        std::from_chars(line.data() + 2, line.data() + used, code, 16).ptr == line.data() + used,
                        "an escape of a string that is no number: damaged?");
                else
                    code = static_cast<std::uint8_t>(meant[letter]);
            }
            line.remove_prefix(used);
            if (bytes || code < 0x80) {
                out += static_cast<char>(code);
            } else {
                if (code >= 0x800) out += static_cast<char>(0xe0 | code >> 12);
                out += static_cast<char>(code >= 0x800 ? 0x80 | (code >> 6 & 0x3f) : 0xc0 | code >> 6);
                out += static_cast<char>(0x80 | (code & 0x3f));
            }
        }
        return out;
    }

    void push_name(const std::string& module, const std::string& function) {
        std::string text = concat(module, ' ', function);
        in_.require_here(std::find(pickle_names.begin(), pickle_names.end(), text) != pickle_names.end(),
                         "the pickle names '", text.substr(0, 200),
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
        const std::string& maker = tree_[parts[0]].text;
        const std::vector<int>& arguments = tree_[parts[1]].items;
        if (maker == "_codecs encode" || maker == "__builtin__ bytes") {  // bytes, by Python 3 and protocols 0 to 2
            std::string text = arguments.empty() ? "" : tree_[arguments[0]].text;
            return push({.kind = node_kind::text, .text = latin1_of(text)});
        }
        const bool by_class = maker == "copy_reg _reconstructor";  // of the class that is its first argument
        in_.require_here(!by_class || (!arguments.empty() && tree_[arguments[0]].kind == node_kind::name),
                         "the pickle makes an object of no class: damaged?");
        push({.kind = node_kind::object, .maker = by_class ? arguments[0] : parts[0], .arguments = parts[1]});
    }
    // The bytes that UTF-8 of characters up to 255 stands for.
    std::string latin1_of(const std::string& text) {
        std::string out;
        for (std::size_t i = 0; i < text.size(); ++i) {
            const auto c = static_cast<std::uint8_t>(text[i]);
            in_.require_here(c < 0x80 || ((c == 0xc2 || c == 0xc3) && i + 1 < text.size()),
                             "bytes of characters beyond 255: damaged?");
            out += c < 0x80 ? text[i] : static_cast<char>((c & 3) << 6 | (text[++i] & 0x3f));
        }
        return out;
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
