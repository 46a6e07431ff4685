#include "catch.hpp"
#include "data/pickles.hpp"
#include "messages.hpp"

#include <cairn/data/graph_nodes.hpp>
#include <cairn/data/planetoid.hpp>

#include <limits>
#include <numeric>

namespace cairn::test {
namespace planetoid_tests {

// 502 nodes before the test, of which 2 train; test nodes 505, 502, 504, in this order; node 503 is missing.
struct files {
    std::vector<std::vector<float>> x, allx, tx{{0, 0, 5}, {0, 2, 0}, {4, 4, 0}};
    std::string index = "505\n502\n504\n";
    std::vector<std::pair<int, std::vector<int>>> graph{{0, {1, 1, 502}}, {1, {0}}, {503, {2, 503}}, {505, {}}};

    files() {
        for (int i = 0; i < 502; ++i) allx.push_back({i % 2 ? 1.0f : 0.0f, 0, static_cast<float>(i)});
        x.assign(allx.begin(), allx.begin() + 2);
    }
    static bytes one_hot(std::size_t rows, std::size_t first = 0) {
        std::vector<std::int32_t> y(2 * rows);
        for (std::size_t i = 0; i < rows; ++i) y[2 * i + (first + i) % 2] = 1;
        return pickled_array({static_cast<int>(rows), 2}, "i4", elements_of(y));
    }
    void write(const temporary_folder& to) const {
        to.write("ind.tiny.x", pickled_csr(x, 3));
        to.write("ind.tiny.allx", pickled_csr(allx, 3));
        to.write("ind.tiny.tx", pickled_csr(tx, 3));
        to.write("ind.tiny.y", one_hot(x.size()));
        to.write("ind.tiny.ally", one_hot(allx.size()));
        to.write("ind.tiny.ty", one_hot(tx.size(), 1));
        to.write("ind.tiny.test.index", index);
        to.write("ind.tiny.graph", pickled_graph(graph));
    }
};

std::vector<float> row(const csr_matrix<float>& m, index_t r) {
    std::vector<float> dense(static_cast<std::size_t>(m.columns));
    for (auto i = static_cast<std::size_t>(m.begin[static_cast<std::size_t>(r)]);
         i < static_cast<std::size_t>(m.begin[static_cast<std::size_t>(r) + 1]); ++i)
        dense[static_cast<std::size_t>(m.column[i])] = m.value[i];
    return dense;
}

TEST_CASE("planetoid: nodes in order, parts, missing nodes and symmetric edges", "[planetoid]") {
    const temporary_folder folder;
    files().write(folder);
    const citation_graph g = read_planetoid(folder.path(), "tiny");
    REQUIRE(g.nodes() == 506);
    REQUIRE(g.classes == 2);
    CHECK(g.train == std::vector<index_t>{0, 1});
    CHECK(g.validation.front() == 2);
    CHECK(g.validation.size() == 500);
    CHECK(g.test == std::vector<index_t>{502, 504, 505});
    CHECK(g.missing == std::vector<index_t>{503});
    g.features.check("features");
    CHECK(row(g.features, 7) == std::vector<float>{1, 0, 7});
    CHECK(row(g.features, 502) == std::vector<float>{0, 2, 0});
    CHECK(row(g.features, 503) == std::vector<float>{0, 0, 0});
    CHECK(row(g.features, 504) == std::vector<float>{4, 4, 0});
    CHECK(row(g.features, 505) == std::vector<float>{0, 0, 5});
    CHECK(std::vector<std::int32_t>(g.labels.end() - 4, g.labels.end()) == std::vector<std::int32_t>{0, -1, 1, 1});
    CHECK(g.adjacency.nonzeros() == 6);  // 0-1, 0-502, 2-503, both ways, no loops
    CHECK(row(g.adjacency, 502)[0] == 1);
    CHECK(row(g.adjacency, 2)[503] == 1);

    const graph_nodes d("tiny", graph_nodes::dense(g.features, true, g.name), g.labels, g.classes, g.test);
    REQUIRE(d.size() == 1);
    REQUIRE(d.sample_shape() == shape{506, 3});
    CHECK(d.targets().labelled == 3);
    std::vector<float> x(506 * 3, -1);
    std::vector<std::int32_t> label(506, 7);
    d.read(0, {}, {x.data(), label.data(), nullptr});
    CHECK(std::vector<float>(x.end() - 12, x.end()) == std::vector<float>{0, 1, 0, 0, 0, 0, 0.5f, 0.5f, 0, 0, 0, 1});
    CHECK(std::count(label.begin(), label.end(), -1) == 503);
    CHECK(label[505] == 1);
    CHECK(contains(
        message_of([&] { graph_nodes("tiny", graph_nodes::dense(g.features, true, g.name), g.labels, 2, {503}); }),
        "node 503 has class -1"));
}

TEST_CASE("planetoid: neighbours as an array are read, anything else is refused", "[planetoid]") {
    const auto graph_of = [](const bytes& neighbours) {  // of node 1
        const temporary_folder folder;
        files().write(folder);
        bytes body;
        append(body, std::string("}(K\x01"));
        append(body, neighbours);
        append(body, std::string("u"));
        folder.write("ind.tiny.graph", pickled(body));
        return read_planetoid(folder.path(), "tiny");
    };
    const citation_graph g = graph_of(pickled_array_body({2}, "i8", elements_of<std::int64_t>({0, 502})));
    CHECK(g.adjacency.nonzeros() == 4);
    CHECK(row(g.adjacency, 1)[502] == 1);
    CHECK(contains(message_of([&] { graph_of(bytes{"K"[0], 3}); }), "a NumPy array is expected"));
}

TEST_CASE("planetoid: files that do not belong together are named", "[planetoid]") {
    const auto why = [](auto change, const std::string& name = "", const bytes& content = {}) {
        const temporary_folder folder;
        files f;
        change(f);
        f.write(folder);
        if (!name.empty()) folder.write(name, content);
        return message_of([&] { read_planetoid(folder.path(), "tiny"); });
    };
    const auto nothing = [](files&) {};
    CHECK(why(nothing).empty());
    CHECK(contains(why([](files& f) { f.index = "505\n502\n502\n"; }), "listed twice"));
    CHECK(contains(why([](files& f) { f.index = "505\n502\n"; }), "nodes of test.index and tx: 2, expected 3"));
    CHECK(contains(why([](files& f) { f.index = "505\n503\n504\n"; }), "the first test node: 503, expected 502"));
    CHECK(contains(why([](files& f) { f.index = "505\nfive\n504\n"; }), "line 2: 'five'"));
    CHECK(contains(why([](files& f) { f.index = "502\n503\n99999\n"; }), "node 99999"));
    CHECK(contains(why([](files& f) { f.graph.push_back({9, {506}}); }), "edge 9 - 506, but there are 506 nodes"));
    CHECK(contains(why([](files& f) { f.allx.resize(400); }), "500 for validation"));
    for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        const std::string message = why([&](files& f) { f.allx[7][2] = broken; });
        CHECK(contains(message, "ind.tiny.allx: row 7, column 2 is "));
    }
    CHECK(contains(why(nothing, "ind.tiny.ty", files::one_hot(2)), "nodes of ty and tx: 2, expected 3"));
    CHECK(contains(why(nothing, "ind.tiny.y", pickled_array({2, 2}, "i4", elements_of<std::int32_t>({1, 1, 0, 1}))),
                   "row 0 of the labels is not one 1"));
    CHECK(contains(why(nothing, "ind.tiny.x", files::one_hot(2)), "csr_matrix is expected"));
    CHECK(contains(why(nothing, "ind.tiny.graph", files::one_hot(2)), "a dictionary of neighbours is expected"));
    CHECK(contains(message_of([] { read_planetoid("/nowhere", "cora"); }), "/nowhere/ind.cora.x: no such file"));
}

TEST_CASE("planetoid: features that do not fit into memory are refused", "[planetoid]") {
    csr_matrix<float> wide;
    wide.rows = 100'000;
    wide.columns = INT32_MAX;
    wide.begin.assign(100'001, 0);
    wide.check("wide");
    CHECK(contains(message_of([&] { graph_nodes::dense(wide, true, "tiny"); }),
                   "graph tiny: features of shape (100000, 2147483647) take"));
    wide.columns = 3;
    CHECK(graph_nodes::dense(wide, true, "tiny")->size() == 300'000);
}

TEST_CASE("planetoid: Cora from both kinds of files", "[planetoid]") {
    const auto folder = real_data() / "graph-planetoid";
    if (real_data().empty() || !std::filesystem::exists(folder)) {
        WARN("skipped: no data");
        return;
    }
    const citation_graph g = read_planetoid(folder, "cora");
    CHECK(g.nodes() == 2708);
    CHECK(g.features.columns == 1433);
    CHECK(g.classes == 7);
    CHECK(g.train.size() == 140);
    CHECK(g.validation.size() == 500);
    CHECK(g.test.size() == 1000);
    CHECK(g.test.front() == 1708);
    CHECK(g.missing.empty());
    CHECK(g.adjacency.nonzeros() == 2 * 5278);
    const citation_graph other = read_graph_npz(folder / "cora.npz", 0);
    CHECK(other.nodes() == 2708);
    CHECK(other.adjacency.nonzeros() == g.adjacency.nonzeros());
    CHECK(other.features.nonzeros() == g.features.nonzeros());
    CHECK(other.train.size() == 140);
    CHECK(other.validation.size() == 500);
    CHECK(other.test.size() == 1000);
}

}  // namespace planetoid_tests
}  // namespace cairn::test
