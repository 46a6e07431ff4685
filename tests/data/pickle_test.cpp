#include "catch.hpp"
#include "data/numpy2_pickles.hpp"
#include "data/pickles.hpp"
#include "messages.hpp"

#include <cairn/data/planetoid.hpp>

namespace cairn::test {
namespace pickle_tests {

std::string refusal(const bytes& b) {
    return message_of([&] { parse_pickle(b, "x.pickle"); });
}
std::string refusal(const std::string& text) { return refusal(bytes(text.begin(), text.end())); }

TEST_CASE("pickle: arrays of every type and order", "[pickle]") {
    const std::vector<std::int32_t> six{1, 2, 3, 4, 5, -6};
    const pickle_tree p = parse_pickle(pickled_array({2, 3}, "i4", elements_of(six)), "x.pickle");
    const npy_array a = p.array(p.root());
    CHECK(a.shape == shape{2, 3});
    CHECK(a.to_tensor<float>()[5] == -6.0f);
    CHECK(a.to_tensor<float>()[1] == 2.0f);
    const pickle_tree f = parse_pickle(pickled_array({2, 3}, "i4", elements_of(six), true), "x.pickle");
    CHECK(f.array(f.root()).to_tensor<float>()[1] == 3.0f);
    const pickle_tree d = parse_pickle(pickled_array({2}, "f8", elements_of<double>({0.5, -2})), "x.pickle");
    CHECK(d.array(d.root()).to_tensor<double>()[1] == -2);
    CHECK(parse_pickle(pickled_array({1}, "b1", {1}), "x").root().kind == pickle_tree::node_kind::object);
}

TEST_CASE("pickle: numbers, lists, dictionaries and what is kept for later", "[pickle]") {
    constexpr char raw[] =
        "\x80\x02}(U\x01"
        "aK\x07U\x01"
        "b](J\xfe\xff\xff\xffM\x01\x02\x8a\x02\x00\x80\x88Neq\x01U\x01"
        "ch\x01u.";
    const std::string text(raw, sizeof raw - 1);
    const pickle_tree p = parse_pickle(bytes(text.begin(), text.end()), "x.pickle");
    CHECK(p.integer(p.at(p.root(), "a"), "a") == 7);
    const pickle_tree::node& list = p.at(p.root(), "b");
    REQUIRE(list.items.size() == 5);
    const std::vector<std::int64_t> expected{-2, 513, -32768, 1};
    for (std::size_t i = 0; i < 4; ++i) CHECK(p.integer(p[list.items[i]], "a number") == expected[i]);
    CHECK(p[list.items[4]].kind == pickle_tree::node_kind::none);
    CHECK(&p.at(p.root(), "c") == &list);
    CHECK(contains(message_of([&] { p.at(p.root(), "d"); }), "no 'd'"));
    CHECK(contains(message_of([&] { p.integer(list, "the size"); }), "the size is no whole number"));
    CHECK(contains(message_of([&] { p.array(list); }), "a NumPy array is expected"));
}

TEST_CASE("pickle: NumPy 2 and SciPy, each protocol", "[pickle]") {
    for (std::size_t protocol = 0; protocol < 6; ++protocol) {
        INFO("protocol " << protocol);
        const pickle_tree array = parse_pickle(of_hexadecimal(numpy2_arrays[protocol]), "array.pickle");
        const tensor<std::int32_t> t = array.array(array.root()).to_tensor<std::int32_t>();
        CHECK(t.shape() == shape{2, 3});
        CHECK(std::vector(t.span().begin(), t.span().end()) == std::vector<std::int32_t>{1, -2, 200, 0, 10, 92});

        const pickle_tree matrix = parse_pickle(of_hexadecimal(numpy2_matrices[protocol]), "matrix.pickle");
        const csr_matrix<float> m = detail::csr_of_pickle(matrix);
        CHECK((m.rows == 2 && m.columns == 2));
        CHECK(m.begin == std::vector<index_t>{0, 1, 2});
        CHECK(m.column == std::vector<std::int32_t>{0, 1});
        CHECK(m.value == std::vector<float>{1, 2.5f});

        const pickle_tree graph = parse_pickle(of_hexadecimal(numpy2_graphs[protocol]), "graph.pickle");
        std::vector<std::int64_t> found;
        for (std::size_t i = 0; i + 1 < graph.root().items.size(); i += 2) {
            found.push_back(graph.integer(graph[graph.root().items[i]], "a node"));
            for (const int to : graph[graph.root().items[i + 1]].items)
                found.push_back(graph.integer(graph[to], "a neighbour"));
        }
        CHECK(found == std::vector<std::int64_t>{0, 1, 2, 1, 0, 2});
    }
}

TEST_CASE("pickle: lines of protocol 0", "[pickle]") {
    const auto text = [](const std::string& s) {
        const pickle_tree p = parse_pickle(bytes(s.begin(), s.end()), "x.pickle");
        return p.root().text;
    };
    CHECK(text("S'a\\x00\\n\\\\\\'\xff'\np0\n.") == std::string("a\0\n\\'\xff", 6));
    CHECK(text("S\"it's\"\n.") == "it's");
    CHECK(text("Va\\u005c\xe9\\u20ac\n.") == "a\\\xc3\xa9\xe2\x82\xac");
    for (const auto& [line, why] : {std::pair{"S'\\q'\n.", "an escape"}, std::pair{"S'\\x0'\n.", "an escape"},
                                    std::pair{"V\\u00zz\n.", "an escape"}, std::pair{"S'a\n.", "without quotes"},
                                    std::pair{"I12x\n.", "'12x' is no whole number"}, std::pair{"I", "truncated"},
                                    std::pair{"I99999999999999999999\n.", "no whole number of 8 bytes"},
                                    std::pair{"K\x01p-1\n.", "no whole number of 4 bytes"}})
        CHECK(contains(refusal(std::string(line)), why));
    const std::string list = "(lp0\nI01\naI00\naL-5L\na.";
    const pickle_tree p = parse_pickle(bytes(list.begin(), list.end()), "x.pickle");
    REQUIRE(p.root().items.size() == 3);
    CHECK(p.integer(p[p.root().items[0]], "a") == 1);
    CHECK(p.integer(p[p.root().items[2]], "a") == -5);
    CHECK(contains(refusal("c_codecs\nencode\n(V\\u20ac\nVlatin1\ntR."), "characters beyond 255"));
}

TEST_CASE("pickle: nothing that could run is read", "[pickle]") {
    for (const char* const call : {"cos\nsystem\n(U\x02lstR.", "cposix\nsystem\n.", "c__builtin__\neval\n.",
                                   "cbuiltins\nexec\n.", "csubprocess\nPopen\n."}) {
        const std::string why = refusal(std::string("\x80\x02") + call);
        CHECK(contains(why, "x.pickle: byte"));
        CHECK(contains(why, "pickles can run programs, this one is not read"));
    }
    CHECK(contains(refusal("(S'ls'\nios\nsystem\n."), "opcode 105"));  // INST of protocol 0
    CHECK(contains(refusal("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R."), "the pickle names 'os system'"));
    CHECK(contains(refusal("\x80\x04\x93."), "takes what it did not put there"));
    CHECK(contains(refusal("\x80\x05\x97."), "opcode 151"));  // a buffer outside of the file
    CHECK(contains(refusal("\x80\x06."), "pickle protocol 6; 0 to 5 are read"));
}

TEST_CASE("pickle: what is damaged says so", "[pickle]") {
    CHECK(contains(refusal("\x80\x02"), "truncated"));
    CHECK(contains(refusal("\x80\x02."), "takes what it did not put there"));
    CHECK(contains(refusal("\x80\x02t."), "ends what it did not begin"));
    CHECK(contains(refusal("\x80\x02]K\x01h\x05."), "recalls number 5"));
    CHECK(contains(refusal("\x80\x02K\x01K\x01"
                           "a."),
                   "no list or dictionary"));
    CHECK(contains(refusal("\x80\x02K\x01)R."), "of what is no name and tuple"));
    CHECK(contains(refusal("\x80\x02}(K\x01u."), "a key without a value"));
    CHECK(contains(refusal("\x80\x02T\xff\xff\xff\x7f"
                           "abc"),
                   "a string needs 2147483647 bytes"));
    const auto of = [](const bytes& b) {
        return message_of([&] {
            const pickle_tree p = parse_pickle(b, "x.pickle");
            p.array(p.root());
        });
    };
    CHECK(contains(of(pickled_array({2, 4}, "i4", bytes(24))), "takes 32 bytes, 24 are there"));
    CHECK(contains(of(pickled_array({-1}, "i4", bytes(24))), "extent -1"));
    CHECK(contains(of(pickled_array({2}, "c8", bytes(16))), "elements of type 'c8'"));
    CHECK(contains(of(pickled_array({1}, "O8", bytes(8))), "elements of type 'O8'"));
}

}  // namespace pickle_tests
}  // namespace cairn::test
