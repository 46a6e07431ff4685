#pragma once
// Citation graphs: nodes with sparse features and a class, and edges.
//   Planetoid (Yang, Cohen and Salakhutdinov, ICML 2016): ind.NAME.{x, y, tx, ty, allx, ally, graph} are pickles,
//   ind.NAME.test.index a text. allx and ally are the nodes before the first test node, those of x and y come first:
//     train: the nodes of y (140 of Cora)    validation: the 500 behind them    test: those of test.index
//   A test node that test.index leaves out (15 of Citeseer) has no features, class and part, only edges.
//   gnn-benchmark (Shchur et al. 2018): NAME.npz with adj_*, attr_* by compressed rows and labels. It has no parts:
//   20 nodes of each class train, 500 validate, 1,000 test, drawn by the seed.
// Edges are made symmetric, each once; self loops are left out, for the network adds them.

#include <cairn/core/csr.hpp>
#include <cairn/data/npz.hpp>
#include <cairn/data/pickle.hpp>
#include <cairn/data/shuffle.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file.
struct citation_graph {
    std::string name;
    csr_matrix<float> features;        // (nodes, features)
    csr_matrix<float> adjacency;       // (nodes, nodes), symmetric, of ones
    std::vector<std::int32_t> labels;  // of each node; −1: none
    index_t classes = 0;
    std::vector<index_t> train, validation, test;  // nodes, ascending
    std::vector<index_t> missing;                  // nodes without features and class

    index_t nodes() const { return adjacency.rows; }
};

namespace detail {

inline csr_matrix<float> csr_of_arrays(const std::vector<std::int64_t>& extents, const npy_array& begin,
                                       const npy_array& column, const npy_array& value, const std::string& name) {
    require(
        extents.size() == 2 && std::min(extents[0], extents[1]) >= 0 && std::max(extents[0], extents[1]) <= INT32_MAX,
        name, ": the shape of the sparse matrix is not (rows, columns): damaged?");
    csr_matrix<float> m;
    m.rows = extents[0];
    m.columns = extents[1];
    const auto copy = [](const auto& t, auto& to) { to.assign(t.span().begin(), t.span().end()); };
    copy(begin.to_tensor<std::int64_t>(), m.begin);
    copy(column.to_tensor<std::int32_t>(), m.column);
    copy(value.to_tensor<float>(), m.value);
    m.check(name);
    for (index_t r = 0; r < m.rows; ++r)
        for (auto i = static_cast<std::size_t>(m.begin[static_cast<std::size_t>(r)]);
             i < static_cast<std::size_t>(m.begin[static_cast<std::size_t>(r) + 1]); ++i)
            require(std::isfinite(m.value[i]), name, ": row ", r, ", column ", m.column[i], " is ", m.value[i],
                    "; a finite float is expected: mend the file");
    return m;
}

/// SciPy's csr_matrix of a pickle.
inline csr_matrix<float> csr_of_pickle(const pickle_tree& p) {
    const bool csr = p.is_object(p.root(), "csr_matrix") || p.is_object(p.root(), "csr_array");
    require(csr && p.root().state >= 0, p.name(), ": a SciPy csr_matrix is expected: another kind of file?");
    const pickle_tree::node& state = p[p.root().state];
    const pickle_tree::node& extents = p.at(state, p.has(state, "_shape") ? "_shape" : "shape");
    std::vector<std::int64_t> shape;
    for (const int i : extents.items) shape.push_back(p.integer(p[i], "an extent of the matrix"));
    return csr_of_arrays(shape, p.array(p.at(state, "indptr")), p.array(p.at(state, "indices")),
                         p.array(p.at(state, "data")), p.name());
}

/// Class numbers of one-hot rows; −1 of a row of zeros.
inline std::vector<std::int32_t> classes_of_one_hot(const pickle_tree& p, index_t& classes) {
    const npy_array a = p.array(p.root());
    require(a.shape.rank() == 2, p.name(), ": labels of shape ", a.shape, "; (nodes, classes) are expected");
    classes = a.shape[1];
    const tensor<float> t = a.to_tensor<float>();
    std::vector<std::int32_t> labels;
    for (index_t r = 0; r < a.shape[0]; ++r) {
        std::int32_t label = -1;
        for (index_t c = 0; c < classes; ++c) {
            const float v = t[r * classes + c];
            require(v == 0 || (v == 1 && label < 0), p.name(), ": row ", r,
                    " of the labels is not one 1 and zeros: another kind of file?");
            if (v == 1) label = static_cast<std::int32_t>(c);
        }
        labels.push_back(label);
    }
    return labels;
}

/// A symmetric matrix of ones without a diagonal. Throws on a node beyond the last one.
inline csr_matrix<float> symmetric_graph(index_t nodes, const std::vector<std::pair<std::int64_t, std::int64_t>>& edges,
                                         const std::string& name) {
    std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
    for (const auto& [a, b] : edges) {
        require(a >= 0 && a < nodes && b >= 0 && b < nodes, name, ": edge ", a, " - ", b, ", but there are ", nodes,
                " nodes: do the files belong together?");
        if (a == b) continue;
        pairs.emplace_back(static_cast<std::int32_t>(a), static_cast<std::int32_t>(b));
        pairs.emplace_back(static_cast<std::int32_t>(b), static_cast<std::int32_t>(a));
    }
    return csr_of_pairs<float>(nodes, nodes, std::move(pairs));
}

/// The whole numbers of a text, one a line.
inline std::vector<index_t> numbers_of_lines(const std::filesystem::path& path) {
    const std::vector<std::uint8_t> bytes = read_bytes(path);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::vector<index_t> numbers;
    for (std::size_t at = 0, line = 1; at < text.size(); ++line) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        std::string_view word = text.substr(at, end - at);
        while (!word.empty() && (word.back() == '\r' || word.back() == ' ')) word.remove_suffix(1);
        at = end + 1;
        if (word.empty()) continue;
        index_t number = 0;
        const auto [stop, failure] = std::from_chars(word.data(), word.data() + word.size(), number);
        require(failure == std::errc{} && stop == word.data() + word.size() && number >= 0, path.string(), ": line ",
                line, ": '", word, "' is no number of a node");
        numbers.push_back(number);
    }
    return numbers;
}

inline std::vector<index_t> count_from(index_t first, index_t count) {
    std::vector<index_t> all;
    for (index_t i = 0; i < count; ++i) all.push_back(first + i);
    return all;
}

}  // namespace detail

/// Reads FOLDER/ind.NAME.*, with Planetoid's public parts. Throws naming the file and what is wrong with it.
inline citation_graph read_planetoid(const std::filesystem::path& folder, const std::string& name) {
    constexpr index_t validated = 500;
    const auto path = [&](const char* part) { return folder / concat("ind.", name, '.', part); };
    const auto pickle = [&](const char* part) { return parse_pickle(read_bytes(path(part)), path(part).string()); };
    citation_graph g;
    g.name = name;
    const csr_matrix<float> x = detail::csr_of_pickle(pickle("x")), known = detail::csr_of_pickle(pickle("allx")),
                            tested = detail::csr_of_pickle(pickle("tx"));
    index_t classes = 0;
    const std::vector<std::int32_t> y = detail::classes_of_one_hot(pickle("y"), g.classes),
                                    ty = detail::classes_of_one_hot(pickle("ty"), classes);
    g.labels = detail::classes_of_one_hot(pickle("ally"), classes);
    const std::vector<index_t> listed = detail::numbers_of_lines(path("test.index"));
    const std::string all = path("*").string();
    const auto expect = [&](const char* what, index_t found, index_t expected) {
        require(found == expected, all, ": ", what, ": ", found, ", expected ", expected,
                "; do the files belong together?");
    };
    expect("nodes of y and x", std::ssize(y), x.rows);
    expect("nodes of ally and allx", std::ssize(g.labels), known.rows);
    expect("nodes of ty and tx", std::ssize(ty), tested.rows);
    expect("nodes of test.index and tx", std::ssize(listed), tested.rows);
    expect("features of tx and allx", tested.columns, known.columns);
    expect("classes of ally and y", classes, g.classes);
    require(tested.rows > 0 && x.rows + validated <= known.rows, all, ": ", tested.rows, " test nodes, ", x.rows,
            " training nodes and ", known.rows, " in all before the test; there must be some, and ", validated,
            " for validation");
    g.test = listed;
    std::sort(g.test.begin(), g.test.end());
    require(std::adjacent_find(g.test.begin(), g.test.end()) == g.test.end(), path("test.index").string(),
            ": a node is listed twice");
    expect("the first test node", g.test.front(), known.rows);
    const index_t nodes = g.test.back() + 1;
    require(nodes - known.rows <= 100 * tested.rows, path("test.index").string(), ": node ", nodes - 1, " of ",
            known.rows + tested.rows, ": damaged?");

    // Row i of tx is node listed[i].
    std::vector<index_t> row_of(static_cast<std::size_t>(nodes - known.rows), -1);
    for (std::size_t i = 0; i < listed.size(); ++i)
        row_of[static_cast<std::size_t>(listed[i] - known.rows)] = static_cast<index_t>(i);
    g.features = known;
    g.features.rows = nodes;
    for (std::size_t k = 0; k < row_of.size(); ++k) {
        if (row_of[k] < 0) {
            g.missing.push_back(known.rows + static_cast<index_t>(k));
            g.labels.push_back(-1);
        } else {
            const auto r = static_cast<std::size_t>(row_of[k]);
            for (auto i = static_cast<std::size_t>(tested.begin[r]); i < static_cast<std::size_t>(tested.begin[r + 1]);
                 ++i) {
                g.features.column.push_back(tested.column[i]);
                g.features.value.push_back(tested.value[i]);
            }
            g.labels.push_back(ty[r]);
        }
        g.features.begin.push_back(g.features.nonzeros());
    }
    g.train = detail::count_from(0, x.rows);
    g.validation = detail::count_from(x.rows, validated);

    const pickle_tree graph = pickle("graph");
    require(graph.root().kind == pickle_tree::node_kind::dictionary || graph.is_object(graph.root(), "defaultdict"),
            graph.name(), ": a dictionary of neighbours is expected: another kind of file?");
    std::vector<std::pair<std::int64_t, std::int64_t>> edges;
    for (std::size_t i = 0; i + 1 < graph.root().items.size(); i += 2) {
        const std::int64_t from = graph.integer(graph[graph.root().items[i]], "a node");
        const pickle_tree::node& to = graph[graph.root().items[i + 1]];
        if (to.kind == pickle_tree::node_kind::list || to.kind == pickle_tree::node_kind::tuple) {
            for (const int n : to.items) edges.emplace_back(from, graph.integer(graph[n], "a neighbour"));
        } else {
            const tensor<std::int64_t> numbers = graph.array(to).to_tensor<std::int64_t>();
            for (const std::int64_t n : numbers.span()) edges.emplace_back(from, n);
        }
    }
    g.adjacency = detail::symmetric_graph(nodes, edges, graph.name());
    return g;
}

/// Reads NAME.npz of gnn-benchmark; parts are drawn by `seed`.
inline citation_graph read_graph_npz(const std::filesystem::path& path, std::uint64_t seed) {
    constexpr index_t trained = 20, validated = 500, tested = 1000;
    const npz_file file(path);
    const auto matrix = [&](const std::string& prefix) {
        const tensor<std::int64_t> shape = file.read(prefix + "_shape").to_tensor<std::int64_t>();
        return detail::csr_of_arrays({shape.span().begin(), shape.span().end()}, file.read(prefix + "_indptr"),
                                     file.read(prefix + "_indices"), file.read(prefix + "_data"),
                                     concat(path.string(), '[', prefix, ']'));
    };
    citation_graph g;
    g.name = path.stem().string();
    g.features = matrix("attr");
    const csr_matrix<float> directed = matrix("adj");
    const tensor<std::int32_t> labels = file.read("labels").to_tensor<std::int32_t>();
    const index_t nodes = directed.rows;
    require(directed.columns == nodes && g.features.rows == nodes && labels.size() == nodes && nodes > 0, path.string(),
            ": a graph of ", nodes, " × ", directed.columns, ", features of ", g.features.rows, " nodes and ",
            labels.size(), " labels; they must agree");
    for (const std::int32_t label : labels.span()) {
        require(label >= 0 && label < 1 << 16, path.string(), ": label ", label, ": damaged?");
        g.labels.push_back(label);
        g.classes = std::max<index_t>(g.classes, label + 1);
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> edges;
    for (index_t r = 0; r < nodes; ++r)
        for (auto i = static_cast<std::size_t>(directed.begin[static_cast<std::size_t>(r)]);
             i < static_cast<std::size_t>(directed.begin[static_cast<std::size_t>(r) + 1]); ++i)
            edges.emplace_back(r, directed.column[i]);
    g.adjacency = detail::symmetric_graph(nodes, edges, path.string());
    std::vector<index_t> of_class(static_cast<std::size_t>(g.classes));
    for (const index_t node : random_order(nodes, {seed, stream_of("graph parts"), 0})) {
        index_t& count = of_class[static_cast<std::size_t>(g.labels[static_cast<std::size_t>(node)])];
        if (count < trained)
            ++count, g.train.push_back(node);
        else if (std::ssize(g.validation) < validated)
            g.validation.push_back(node);
        else if (std::ssize(g.test) < tested)
            g.test.push_back(node);
    }
    require(!g.test.empty(), path.string(), ": ", nodes, " nodes are too few for ", trained, " of each class, ",
            validated, " for validation, and a test");
    for (auto* part : {&g.train, &g.validation, &g.test}) std::sort(part->begin(), part->end());
    return g;
}

}  // namespace cairn
