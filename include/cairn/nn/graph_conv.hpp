#pragma once
// Graph convolution (Kipf and Welling, ICLR 2017):  y = Â x W + b,   Â = D^-1/2 (A + I) D^-1/2,   D: row sums of A + I
// x (N, nodes, in), W (in, out), b (out), y (N, nodes, out). Every sample of a batch lies on the same graph.
//   h = x W,  y = Â h + b        dh = Âᵀ dy,   dx = dh Wᵀ,   dW += xᵀ dh,   db += column sums of dy
// To second-order methods it is an affine map of the nodes' sums Â x: dW = (Â x)ᵀ dy.
// Saved: x; after backward_input also dy. Workspace: h, dh. Tested against plain loops in tests/nn/graph_conv_test.cpp.

#include <cairn/core/csr.hpp>
#include <cairn/device/cpu/csr.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/gemm_bias.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/rows.hpp>
#include <cairn/nn/weighted_layer.hpp>

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <typeindex>
#include <utility>

namespace cairn {

/// Â of a graph and its transpose, shared by the layers on it: in double, and in the memory of each device that a layer
/// asks for, in its type.
class graph_operator {
public:
    /// Â = D^-1/2 (A + I) D^-1/2 of adjacency matrix A, whose values are not negative. Throws unless A is square; a
    /// self loop that A has already is not added again.
    static std::shared_ptr<const graph_operator> normalised(const csr_matrix<float>& a) {
        a.check("graph");
        require(a.rows == a.columns, "graph: an adjacency matrix of ", a.rows, " × ", a.columns,
                "; as many rows as columns are expected");
        csr_matrix<double> with_loops;
        with_loops.rows = with_loops.columns = a.rows;
        std::vector<double> degree;
        for (index_t r = 0; r < a.rows; ++r) {
            double sum = 0;
            bool looped = false;
            const auto push = [&](std::int32_t column, double value) {
                with_loops.column.push_back(column);
                with_loops.value.push_back(value);
                sum += value;
                looped |= column == r;
            };
            for (index_t i = a.begin[at(r)]; i < a.begin[at(r + 1)]; ++i) {
                require(a.value[at(i)] >= 0, "graph: edge ", r, " - ", a.column[at(i)], " has weight ", a.value[at(i)],
                        "; weights must not be negative");
                push(a.column[at(i)], static_cast<double>(a.value[at(i)]));
            }
            if (!looped) push(static_cast<std::int32_t>(r), 1);
            with_loops.begin.push_back(with_loops.nonzeros());
            degree.push_back(sum);
        }
        for (index_t r = 0; r < a.rows; ++r)
            for (index_t i = with_loops.begin[at(r)]; i < with_loops.begin[at(r + 1)]; ++i) {
                const double product = degree[at(r)] * degree[at(with_loops.column[at(i)])];
                double& v = with_loops.value[at(i)];
                v = product > 0 ? v / std::sqrt(product) : 0;
            }
        return std::make_shared<const graph_operator>(std::move(with_loops));
    }

    explicit graph_operator(csr_matrix<double> a) : exact_(std::move(a)) {}

    index_t nodes() const { return exact_.rows; }
    index_t nonzeros() const { return exact_.nonzeros(); }
    template <class T, Device D = cpu>
    csr_view<T> matrix() const {
        return on<T, D>().first.view();
    }
    template <class T, Device D = cpu>
    csr_view<T> transposed() const {
        return on<T, D>().second.view();
    }

private:
    static constexpr std::size_t at(index_t i) { return static_cast<std::size_t>(i); }

    template <class T, Device D>
    const auto& on() const {
        using both_ways = std::pair<csr_tensors<T, D>, csr_tensors<T, D>>;
        const std::scoped_lock lock(mutex_);
        std::shared_ptr<void>& held = held_[{typeid(both_ways), &D::memory()}];
        if (!held)
            held = std::make_shared<both_ways>(csr_tensors<T, D>(exact_), csr_tensors<T, D>(exact_.transposed()));
        return *static_cast<const both_ways*>(held.get());
    }

    csr_matrix<double> exact_;
    mutable std::mutex mutex_;
    mutable std::map<std::pair<std::type_index, const void*>, std::shared_ptr<void>> held_;
};

/// Graph convolution layer.
template <class T = float, Device D = cpu>
class graph_conv : public weighted_layer<graph_conv<T, D>, T, D> {
public:
    using typename weighted_layer<graph_conv, T, D>::S;

    struct config {
        index_t in = 0, out = 0;
        std::shared_ptr<const graph_operator> graph = nullptr;
        bool bias = true;
        bool decay = true;  // whether weight decay takes W
        init_rule init = cairn::init::xavier_uniform;
    };

    explicit graph_conv(config c) : config_(std::move(c)) {
        require(config_.in > 0 && config_.out > 0, "graph_conv ", config_.in, " -> ", config_.out,
                ": both sizes must be positive");
        require(config_.graph != nullptr, "graph_conv ", config_.in, " -> ", config_.out,
                ": no graph; give config::graph, such as graph_operator::normalised(adjacency)");
        config_.graph->template matrix<S, D>();  // uploaded before steps are captured
        this->set_parameters({config_.in, config_.out}, config_.init(config_.in, config_.out),
                             config_.bias ? config_.out : 0, {});
        weight_.decay = config_.decay;
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_memory(*this, weight_);
        tensor<T, D> y(output_shape(x.shape()));  // (N, nodes, out)
        const index_t rows = x.size() / config_.in;
        {
            tensor<T, D> h(y.shape(), memory_category::workspace);
            gemm(D{}, false, false, rows, config_.out, config_.in, S{1}, x.data(), config_.in, this->weight().data(),
                 config_.out, S{0}, h.data(), config_.out);
            propagate(config_.graph->template matrix<S, D>(), h, y);
        }
        if (config_.bias) add_to_rows(D{}, rows, config_.out, this->bias().data(), y.data());
        if (p.curvature && weight_.id >= 0 && p.curvature->wants(weight_.id, rows_kind::linear)) {
            tensor<T, D> sums(x.shape(), memory_category::workspace);
            propagate(config_.graph->template matrix<S, D>(), x, sums);
            announce(p.curvature, samples(x).input(sums.data()));
        }
        if (p.training()) saved.put(0, std::move(x));
        return y;
    }

    /// Both halves, with one dh; x is let go before dx is made.
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> x = saved.take(0);
        const shape in = x.shape();
        const tensor<T, D> dh = pulled_back(dy);
        announce(p.curvature, samples(dy).output_gradient(dy.data()));
        if (p.weight_gradient) add_gradients(x, dy, dh);
        x.reset();
        return p.input_gradient ? through_weight(dh, in) : tensor<T, D>{};
    }

    tensor<T, D> input_gradient(const tensor<T, D>& dy, const shape& in) { return through_weight(pulled_back(dy), in); }
    void weight_gradient(const tensor<T, D>& x, const tensor<T, D>& dy, const pass_context& p) {
        announce(p.curvature, samples(dy).output_gradient(dy.data()));
        if (p.weight_gradient) add_gradients(x, dy, pulled_back(dy));
    }

    shape output_shape(const shape& in) const {
        require(in.rank() == 3 && in[1] == config_.graph->nodes() && in[2] == config_.in, describe(), " takes (N, ",
                config_.graph->nodes(), ", ", config_.in, "), got ", in);
        return in.with(-1, config_.out);
    }

    layer_cost cost(const shape& in) const {
        const double x = double(in.size()), y = double(output_shape(in).size()), w = double(weight_.shape.size()),
                     size = sizeof(T), product = 2 * y * double(config_.in), b = double(config_.out);
        const double nonzeros = double(in[0]) * double(config_.graph->nonzeros());
        const phase_cost along_edges{2 * nonzeros * b, nonzeros * (size + sizeof(std::int32_t)) + 2 * size * y};
        layer_cost c;
        c.forward = c.backward_input = {product, size * (x + w + y)};
        c.backward_weight = {product, size * (x + y + 2 * w)};
        for (phase_cost* phase : {&c.forward, &c.backward_input, &c.backward_weight}) *phase += along_edges;
        if (config_.bias) {
            c.forward += {y, size * (2 * y + b)};
            c.backward_weight += {y, size * y};
        }
        for (phase_cost* phase : {&c.forward, &c.backward_input}) *phase += this->cost_of_weight();
        c.forward += this->cost_of_bias();
        c.parameters = weight_.shape.size() + (config_.bias ? config_.out : 0);
        c.saves_input = true;
        c.weight_gradient_first = true;
        return c;
    }

    const std::shared_ptr<const graph_operator>& graph() const { return config_.graph; }

    std::string describe() const { return concat("graph_conv ", config_.in, " -> ", config_.out); }

private:
    using weighted_layer<graph_conv, T, D>::weight_;

    /// to = m from, of each sample.
    void propagate(const csr_view<S>& m, const tensor<T, D>& from, tensor<T, D>& to) const {
        const index_t width = from.extent(-1), each = m.rows * width;
        for (index_t n = 0; n < from.extent(0); ++n)
            csr_times_dense(D{}, m, width, from.data() + n * each, to.data() + n * each);
    }

    // Of x or dy.
    curvature_samples<T> samples(const tensor<T, D>& t) const {
        return {.weight = weight_.id,
                .bias = this->bias_id(),
                .examples = t.extent(0),
                .positions = t.extent(1),
                .in = config_.in,
                .out = config_.out,
                .transposed = true};
    }

    /// dh = Âᵀ dy.
    tensor<T, D> pulled_back(const tensor<T, D>& dy) const {
        tensor<T, D> dh(dy.shape(), memory_category::workspace);
        propagate(config_.graph->template transposed<S, D>(), dy, dh);
        return dh;
    }

    tensor<T, D> through_weight(const tensor<T, D>& dh, const shape& in) const {
        tensor<T, D> dx(in);
        gemm(D{}, false, true, dx.size() / config_.in, config_.in, config_.out, S{1}, dh.data(), config_.out,
             this->weight().data(), config_.out, S{0}, dx.data(), config_.in);
        return dx;
    }

    void add_gradients(const tensor<T, D>& x, const tensor<T, D>& dy, const tensor<T, D>& dh) {
        const index_t rows = x.size() / config_.in;
        linear_gradients(D{}, rows, config_.in, config_.out, x.data(), dh.data(), weight_.grad.data(),
                         static_cast<S*>(nullptr));
        if (config_.bias && rows > 0) column_sums(D{}, rows, config_.out, dy.data(), this->bias_gradient(), true);
    }

    config config_;
};

}  // namespace cairn
