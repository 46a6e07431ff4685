#pragma once
// Graphs of attention (attention_geometry.hpp) for cuDNN, whose engines fuse them into one kernel forward and a few
// backward. The operations and their order are those by which the engines know an attention; what an operation makes
// stays on the chip unless it says otherwise.
//   forward    S = scale Q Kᵀ;  S = −∞ above the diagonal;  m = rowmax S;  E = exp(S − m);  l = rowsum E;
//              lse = m + log l;  y = (E / l) V
//   backward   D = rowsum(dy ∘ y);  E = exp(scale Q Kᵀ − lse);  dV = Eᵀ dy;  dS = scale E ∘ (dy Vᵀ − D);
//              dK = dSᵀ Q;  dQ = dS K
// dQ is written by its product and not added up in float by many blocks in any order: this is the form that cuDNN's
// deterministic engines take. They keep dS in their workspace, length² numbers a head.
// Operations and types follow cudnn-frontend's sdpa and sdpa_backward (NVIDIA), which are written for the same backend.

#include <cairn/device/attention_geometry.hpp>
#include <cairn/device/cuda/cudnn.hpp>

#include <array>
#include <vector>

namespace cairn::cudnn {

/// Operations over tensors of four axes, one after another.
class operation_list {
public:
    using sizes = std::array<std::int64_t, 4>;
    struct value {
        descriptor tensor;
        sizes size, step;
    };

    static sizes dense(const sizes& s) { return {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1}; }

    value in_memory(std::int64_t id, cudnnDataType_t type, const sizes& size, const sizes& step) {
        return make(id, type, size, step, tensor_place::memory);
    }
    /// One float of the host.
    value number(std::int64_t id) { return make(id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, tensor_place::host); }

    /// y = op(x), element by element.
    value each(cudnnPointwiseMode_t mode, const value& x) {
        const value y = on_chip(CUDNN_DATA_FLOAT, x.size);
        pointwise(rule(mode, CUDNN_DATA_FLOAT), x, nullptr, nullptr, y);
        return y;
    }
    /// y = op(x, b); axes of size 1 of b are repeated.
    value each(cudnnPointwiseMode_t mode, const value& x, const value& b, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
        const value y = on_chip(type, x.size);
        each_to(mode, x, b, y, type == CUDNN_DATA_BOOLEAN ? type : CUDNN_DATA_FLOAT);
        return y;
    }
    void each_to(cudnnPointwiseMode_t mode, const value& x, const value& b, const value& y,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT) {
        pointwise(rule(mode, compute), x, &b, nullptr, y);
    }
    /// y = mask ? x : otherwise.
    value select(const value& x, const value& otherwise, const value& mask) {
        const value y = on_chip(CUDNN_DATA_FLOAT, x.size);
        pointwise(rule(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT), x, &otherwise, &mask, y);
        return y;
    }
    /// y[…] = the index along `axis`, of the shape of x.
    value index_along(std::int64_t axis, const value& x) {
        const value y = on_chip(CUDNN_DATA_INT32, x.size);
        pointwise(rule(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis), x, nullptr, nullptr, y);
        return y;
    }
    /// Sum or maximum over the last axis.
    value reduce(cudnnReduceTensorOp_t how, const value& x) {
        const value y = on_chip(CUDNN_DATA_FLOAT, {x.size[0], x.size[1], x.size[2], 1});
        descriptor reduction(CUDNN_BACKEND_REDUCTION_DESCRIPTOR), o(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
        reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how)
            .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
            .finalise("describing a reduction");
        o.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction)
            .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.tensor)
            .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.tensor);
        list_.push_back(o.finalise("describing a reduction's operation"));
        return y;
    }
    /// y = a b for each of the first two axes, summed in float.
    value multiply(const value& a, const value& b) {
        const value y = on_chip(CUDNN_DATA_FLOAT, {a.size[0], a.size[1], a.size[2], b.size[3]});
        multiply_to(a, b, y);
        return y;
    }
    void multiply_to(const value& a, const value& b, const value& y) {
        descriptor product(CUDNN_BACKEND_MATMUL_DESCRIPTOR), o(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
        product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
            .finalise("describing a product");
        o.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product)
            .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.tensor)
            .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.tensor)
            .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, y.tensor);
        list_.push_back(o.finalise("describing a product's operation"));
    }
    /// The same numbers with the last two axes exchanged, rounded to `type`.
    value transpose(cudnnDataType_t type, const value& x) {
        const value y = make(++made_, type, {x.size[0], x.size[1], x.size[3], x.size[2]},
                             {x.step[0], x.step[1], x.step[3], x.step[2]}, tensor_place::chip);
        descriptor o(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
        o.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.tensor).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.tensor);
        list_.push_back(o.finalise("describing a transposition"));
        return y;
    }
    value on_chip(cudnnDataType_t type, const sizes& size) {
        return make(++made_, type, size, dense(size), tensor_place::chip);
    }

    std::span<const descriptor> all() const { return list_; }

private:
    static value make(std::int64_t id, cudnnDataType_t type, const sizes& size, const sizes& step, tensor_place place) {
        return {describe_tensor(id, type, {size.begin(), size.end()}, {step.begin(), step.end()}, place), size, step};
    }
    static descriptor rule(cudnnPointwiseMode_t mode, cudnnDataType_t type, std::int64_t axis = -1) {
        descriptor d(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
        d.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
            .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, type);
        if (axis >= 0) d.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
        return d.finalise("describing a pointwise rule");
    }
    void pointwise(const descriptor& rule, const value& x, const value* b, const value* t, const value& y) {
        descriptor o(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
        o.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, rule)
            .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.tensor)
            .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.tensor);
        if (b) o.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->tensor);
        if (t) o.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t->tensor);
        list_.push_back(o.finalise("describing a pointwise operation"));
    }

    std::vector<descriptor> list_;
    std::int64_t made_ = 1000;  // numbers of tensors on the chip
};

/// Numbers of the tensors of an attention in its graphs.
enum attention_tensor : std::int64_t {
    id_query = 1,
    id_key,
    id_value,
    id_result,
    id_logs,
    id_result_gradient,
    id_query_gradient,
    id_key_gradient,
    id_value_gradient,
    id_products,  // D, float (batch, heads, length)
    id_scale,     // numbers of the host
    id_masked,    // what masked scores are
    id_one,
};

/// The tensors of an attention in memory.
template <class T>
class attention_graph {
public:
    explicit attention_graph(const attention_geometry& g) : g_(g) {}

    /// With `logs`: lse is written as well.
    descriptor forward(bool logs, cudnnHandle_t h = handle()) {
        const value q = heads_of(id_query), k = heads_of(id_key, true), v = heads_of(id_value);
        const value s = masked(list_.each(CUDNN_POINTWISE_MUL, list_.multiply(q, k), list_.number(id_scale)));
        const value most = list_.reduce(CUDNN_REDUCE_TENSOR_MAX, s);
        const value weights = list_.each(CUDNN_POINTWISE_EXP, list_.each(CUDNN_POINTWISE_SUB, s, most));
        const value total = list_.reduce(CUDNN_REDUCE_TENSOR_ADD, weights);
        // The engines know an attention with logarithms, which may be unused.
        list_.each_to(CUDNN_POINTWISE_ADD, most, list_.each(CUDNN_POINTWISE_LOG, total),
                      logs ? row_of(id_logs) : list_.on_chip(CUDNN_DATA_FLOAT, most.size));
        const value p = list_.on_chip(data_type<T>(), s.size);  // the tensor cores take it so
        list_.each_to(CUDNN_POINTWISE_DIV, weights, total, p);
        list_.multiply_to(p, v, result_of(id_result));
        return graph_of(list_.all(), h);
    }

    descriptor backward(cudnnHandle_t h = handle()) {
        const value q = heads_of(id_query), k = heads_of(id_key, true), v = heads_of(id_value, true);
        const value y = result_of(id_result), dy = result_of(id_result_gradient);
        const value scale = list_.number(id_scale), products = row_of(id_products);
        list_.each_to(CUDNN_POINTWISE_MUL,
                      list_.reduce(CUDNN_REDUCE_TENSOR_ADD, list_.each(CUDNN_POINTWISE_MUL, dy, y)),
                      list_.number(id_one), products);
        const value s = list_.each(CUDNN_POINTWISE_MUL, list_.multiply(q, k), scale);
        const value e = list_.each(CUDNN_POINTWISE_EXP, masked(list_.each(CUDNN_POINTWISE_SUB, s, row_of(id_logs))));
        list_.multiply_to(list_.transpose(data_type<T>(), e), dy, heads_of(id_value_gradient));
        const value slope = list_.each(CUDNN_POINTWISE_SUB, list_.multiply(dy, v), products);
        const value ds = list_.each(CUDNN_POINTWISE_MUL, list_.each(CUDNN_POINTWISE_MUL, slope, e), scale);
        list_.multiply_to(list_.transpose(data_type<T>(), ds), q, heads_of(id_key_gradient));
        list_.multiply_to(ds, list_.transpose(data_type<T>(), k), heads_of(id_query_gradient));
        return graph_of(list_.all(), h);
    }

private:
    using value = operation_list::value;

    /// Of q, k, v and their gradients: (batch, heads, length, head_dim), or the last two exchanged.
    value heads_of(attention_tensor id, bool exchanged = false) { return array(id, g_.position(), exchanged); }
    value result_of(attention_tensor id) { return array(id, g_.width(), false); }
    value array(attention_tensor id, index_t position, bool exchanged) {
        operation_list::sizes size{g_.batch, g_.heads, g_.length, g_.head_dim},
            step{g_.length * position, g_.head_dim, position, 1};
        if (exchanged) std::swap(size[2], size[3]), std::swap(step[2], step[3]);
        return list_.in_memory(id, data_type<T>(), size, step);
    }
    value row_of(attention_tensor id) {
        const operation_list::sizes size{g_.batch, g_.heads, g_.length, 1};
        return list_.in_memory(id, CUDNN_DATA_FLOAT, size, operation_list::dense(size));
    }
    value masked(const value& s) {
        if (!g_.causal) return s;
        const value rows = list_.index_along(2, s), keys = list_.index_along(3, s);
        return list_.select(s, list_.number(id_masked),
                            list_.each(CUDNN_POINTWISE_CMP_GE, rows, keys, CUDNN_DATA_BOOLEAN));
    }

    attention_geometry g_;
    operation_list list_;
};

}  // namespace cairn::cudnn
