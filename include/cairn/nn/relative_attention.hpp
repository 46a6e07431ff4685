#pragma once
// Self-attention with relative positions and a memory (Dai et al. 2019, Transformer-XL, section 3.3). Of a segment x
// (batch, L, width) with the memory m (batch, M, width), which is the input of the segments before, without gradient:
//   h = [m ; x]      q = W_q x      (k, v) = W_kv h      r = W_r R,  R_t = (sin t ω, cos t ω),  ω_c = 10000^(−2c/width)
//   s_ij = ((q_i + u) · k_j + (q_i + v) · r_{i−j}) / √d    for j up to i      y = softmax(s) v, each head by itself
// The four terms: content q·k, content and distance q·r, and the biases u and v in place of a query of their position.
// i − j counts from where the memory begins: a position has no number of its own, so that a memory may be longer in
// evaluation than in training. Kernels and the relative shift: device/relative_attention_geometry.hpp.
// The memory comes with the pass (nn/stream_memory.hpp); without it M = 0. Saved: x, q, (k, v), r, y, a logarithm a row
// and head; h is put together again. K-FAC leaves these maps to the plain gradient.

#include <cairn/core/compiled.hpp>
#include <cairn/device/cpu/gemm_bias.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/relative_attention.hpp>
#include <cairn/device/cpu/rows.hpp>
#include <cairn/nn/add.hpp>
#include <cairn/nn/init.hpp>
#include <cairn/nn/stream_memory.hpp>

#include <cmath>
#include <map>
#include <string>
#include <utility>

namespace cairn {

/// R of n positions, the longest distance first: (n, width).
template <class T>
tensor<T> distance_encodings(index_t n, index_t width) {
    tensor<T> table({n, width}, memory_category::workspace);
    if (on_phantom_rank()) return table;
    for (index_t row = 0; row < n; ++row)
        for (index_t c = 0; c < width / 2; ++c) {
            const double angle = static_cast<double>(n - 1 - row) *
                                 std::pow(10000.0, -2 * static_cast<double>(c) / static_cast<double>(width));
            table[row * width + c] = static_cast<T>(static_cast<weight_of<T>>(std::sin(angle)));
            table[row * width + width / 2 + c] = static_cast<T>(static_cast<weight_of<T>>(std::cos(angle)));
        }
    return table;
}

/// (batch, L, width) → the same; the map behind the heads is a layer of its own.
template <class T = float, Device D = cpu>
class relative_attention {
public:
    using value_type = T;
    using device = D;

    struct config {
        index_t embedding_dim = 0, heads = 1;  // heads divide it; it is even
        index_t memory = 0;                    // M of cost(); in a pass the memory says how long it is
    };

    explicit relative_attention(config c) : config_(c) {
        const index_t width = c.embedding_dim;
        require(width > 0 && c.heads > 0 && width % c.heads == 0 && width % 2 == 0, "relative attention: ", c.heads,
                " heads for width ", width, "; the width must be a multiple of the heads, and even");
        q_ = weight(width, width, 1);
        kv_ = weight(2 * width, width, 1.5);  // each half starts as a map from width to width
        r_ = weight(width, width, 1);
        for (auto* bias : {&u_, &v_}) {
            bias->shape = {width};
            bias->decay = false;
        }
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> y(output_shape(x.shape()));
        require_memory(*this, q_);
        const relative_attention_geometry g = geometry_of(x.shape(), p);
        const tensor<T, D> h = with_memory(x, p);
        if (stream_memory<S, D>* const memory = memory_of(p)) memory->remember(h, name(), p);
        tensor<T, D> q = product(x, q_), kv = product(h, kv_), r = product(distances(g.keys()), r_);
        tensor<S, D> logs;  // (batch, heads, L)
        if (p.training()) logs = tensor<S, D>({g.batch, g.heads, g.length});
        const tensor<T, D> qu = plus(q, u_), qv = plus(q, v_);
        relative_attention_forward(D{}, g, qu.data(), qv.data(), kv.data(), r.data(), y.data(), logs.data());
        if (p.training()) {
            saved.put(x_slot, std::move(x));
            saved.put(y_slot, y.share());
            saved.put(q_slot, std::move(q));
            saved.put(kv_slot, std::move(kv));
            saved.put_exact(r_slot, std::move(r));
            saved.put_exact(logs_slot, std::move(logs));
        }
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        gradients d = differentiate(of_forward(saved, true), dy, p);
        tensor<T, D> dx = p.input_gradient ? of_input(d, dy.shape()) : tensor<T, D>{};
        saved.put_exact(y_slot, std::move(d.q));
        saved.put_exact(kv_slot, std::move(d.kv));
        saved.put_exact(r_slot, std::move(d.r));
        saved.put_exact(u_slot, std::move(d.u));
        saved.put_exact(v_slot, std::move(d.v));
        return dx;
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        const gradients d{saved.take(y_slot), saved.take(kv_slot), saved.template take<S>(r_slot),
                          saved.template take<S>(u_slot), saved.template take<S>(v_slot)};
        add_gradients(saved.take(x_slot), d, p);
    }

    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const forward_tensors of = of_forward(saved, false);
        const gradients d = differentiate(of, dy, p);
        add_gradients(of.x, d, p);
        return p.input_gradient ? of_input(d, dy.shape()) : tensor<T, D>{};
    }

    layer_parameters<T, D> parameters() {
        return {{"q/weight", &q_}, {"kv/weight", &kv_}, {"r/weight", &r_}, {"u", &u_}, {"v", &v_}};
    }

    shape output_shape(const shape& in) const {
        require(in.rank() == 3 && in.back() == config_.embedding_dim, describe(), " takes (batch, length, ",
                config_.embedding_dim, "), got ", in);
        return in;
    }

    layer_cost cost(const shape& in) const {
        const index_t w = config_.embedding_dim, keys = config_.memory + in[1];
        const relative_attention_geometry g = geometry_of(in, config_.memory, 0);
        const double size = sizeof(T), wide = sizeof(S), x = double(in.size()), h = double(in[0] * keys * w);
        layer_cost c;
        c.parameters = 4 * w * w + 2 * w;
        const phase_cost copies = config_.memory ? phase_cost{0, 2 * size * h} : phase_cost{};  // h
        for (phase_cost* phase : {&c.forward, &c.backward_weight}) *phase += copies;
        if (config_.memory) c.forward += {0, 2 * size * double(in[0] * config_.memory * w)};
        for (auto [rows, maps] : {std::pair{in[0] * in[1], 1}, {in[0] * keys, 2}, {keys, 1}}) {
            const double in_values = double(rows * w), out_values = double(maps) * in_values,
                         weights = double(maps * w * w);
            const double flops = 2 * in_values * double(maps * w);
            c.forward += {flops, size * (in_values + weights + out_values)};
            c.forward += cast_cost<T, S>(weights);
            c.backward_weight += {flops, size * (in_values + out_values) + 2 * wide * weights};
        }
        for (auto maps : {1, 2}) {
            const double weights = double(maps * w * w), again = maps == 2 ? x : 0;
            c.backward_input += {2 * x * double(maps * w), size * (x * maps + weights + x + again)};
            c.backward_input += cast_cost<T, S>(weights);
        }
        for (phase_cost* phase : {&c.forward, &c.backward_input}) {
            *phase += {2 * x, 2 * size * (2 * x + double(w))};
            *phase += cast_cost<T, S>(2.0 * double(w));
        }
        c.forward += {g.forward_flops(), g.forward_bytes(size, wide)};
        c.backward_input += {g.backward_flops(), g.backward_bytes(size, wide)};
        c.backward_input += {2 * x + h, size * (2 * x + h)};               // sums of u, v and r
        c.backward_input += {x, 3 * size * x};                             // of both parts of q
        c.backward_input += {0, 2 * size * 2 * x};                         // k and v of x alone
        c.backward_weight += {4.0 * double(w), 2 * 2 * wide * double(w)};  // u and v
        c.backward_weight += cast_cost<T, S>(double(keys * w));
        c.saved_bytes = block_bytes<T>(in) + block_bytes<T>({in[0], keys, 2 * w}) + block_bytes<T>({keys, w}) +
                        block_bytes<S>({in[0], config_.heads, in[1]});
        c.saves_input = c.saves_output = c.holds_input = true;
        return c;
    }

    std::string describe() const {
        return concat("relative attention of ", config_.heads, " heads, width ", config_.embedding_dim);
    }

    /// Its path in the whole model, by which the memory knows it.
    std::string name() const { return u_.name.substr(0, u_.name.size() - std::min<std::size_t>(u_.name.size(), 2)); }
    index_t width() const { return config_.embedding_dim; }

private:
    using S = weight_of<T>;

    enum slot { x_slot, y_slot, q_slot, kv_slot, r_slot, logs_slot, u_slot, v_slot };

    struct forward_tensors {
        tensor<T, D> x, y, q, kv, r;
        tensor<S, D> logs;
    };
    struct gradients {
        tensor<T, D> q, kv;    // (batch, L, width), (batch, M + L, 2 width)
        tensor<S, D> r, u, v;  // (M + L, width), (width)
    };

    static layer_parameter<T, D> weight(index_t out, index_t in, double gain) {
        layer_parameter<T, D> w;
        w.shape = {out, in};
        w.init = init::xavier_uniform.scaled(gain)(in, out);
        return w;
    }

    static stream_memory<S, D>* memory_of(const pass_context& p) { return static_cast<stream_memory<S, D>*>(p.memory); }
    relative_attention_geometry geometry_of(const shape& in, index_t memory, index_t known) const {
        return {.batch = in[0],
                .length = in[1],
                .memory = memory,
                .begin = memory - known,
                .heads = config_.heads,
                .head_dim = config_.embedding_dim / config_.heads};
    }
    relative_attention_geometry geometry_of(const shape& in, const pass_context& p) const {
        stream_memory<S, D>* const memory = memory_of(p);
        return memory ? geometry_of(in, memory->length(), memory->known()) : geometry_of(in, 0, 0);
    }
    tensor<T, D> with_memory(const tensor<T, D>& x, const pass_context& p) const {
        stream_memory<S, D>* const memory = memory_of(p);
        return memory ? memory->before(x, name(), p) : x.share();
    }

    tensor<T, D> distances(index_t keys) {
        auto at = distances_.find(keys);
        if (at == distances_.end())
            at = distances_
                     .emplace(keys, device_side<D>(distance_encodings<T>(keys, width()), memory_category::workspace))
                     .first;
        return at->second.share();
    }

    /// x Wᵀ.
    tensor<T, D> product(const tensor<T, D>& x, const layer_parameter<T, D>& w) const {
        const index_t out = w.shape[0], in = w.shape[1];
        tensor<T, D> y(x.shape().with(-1, out));
        gemm_bias(D{}, false, true, x.size() / in, out, in, S{1}, x.data(), in, cast<T>(w.value).data(), in, y.data(),
                  out, static_cast<const T*>(nullptr));
        return y;
    }
    tensor<T, D> plus(const tensor<T, D>& q, const layer_parameter<T, D>& bias) const {
        tensor<T, D> sum = q.clone(memory_category::workspace);
        if (sum.size() > 0) add_to_rows(D{}, q.size() / width(), width(), cast<T>(bias.value).data(), sum.data());
        return sum;
    }

    static forward_tensors of_forward(saved_tensors<T, D>& saved, bool keeps_x) {
        return {keeps_x ? saved.get(x_slot).share() : saved.take(x_slot),
                saved.take(y_slot),
                saved.take(q_slot),
                saved.take(kv_slot),
                saved.take(r_slot),
                saved.template take<S>(logs_slot)};
    }

    gradients differentiate(const forward_tensors& of, const tensor<T, D>& dy, const pass_context& p) const {
        require_shape(dy, of.y.shape(), "relative attention: dy");
        constexpr memory_category kind = memory_category::workspace;
        const relative_attention_geometry g = geometry_of(of.x.shape(), p);
        const index_t keys = g.keys(), w = width();
        const tensor<T, D> qu = plus(of.q, u_), qv = plus(of.q, v_);
        tensor<T, D> dqu(of.q.shape(), kind), dqv(of.q.shape(), kind), dr({g.batch, keys, w}, kind);
        gradients d{{},
                    tensor<T, D>(of.kv.shape(), kind),
                    tensor<S, D>({keys, w}, kind),
                    tensor<S, D>({w}, kind),
                    tensor<S, D>({w}, kind)};
        relative_attention_backward(D{}, g, qu.data(), qv.data(), of.kv.data(), of.r.data(), of.y.data(),
                                    of.logs.data(), dy.data(), dqu.data(), dqv.data(), d.kv.data(), dr.data());
        column_sums(D{}, g.batch, keys * w, dr.data(), d.r.data(), false);
        column_sums(D{}, g.batch * g.length, w, dqu.data(), d.u.data(), false);
        column_sums(D{}, g.batch * g.length, w, dqv.data(), d.v.data(), false);
        d.q = add(std::move(dqu), std::move(dqv));
        return d;
    }

    /// W_qᵀ dq + W_kvᵀ (dk, dv) of the segment; what is the memory's is dropped.
    tensor<T, D> of_input(const gradients& d, const shape& in) const {
        const index_t w = width(), rows = in[0] * in[1], segment = in[1] * 2 * w, all = d.kv.extent(1) * 2 * w;
        tensor<T, D> dx(in), here({in[0], in[1], 2 * w}, memory_category::workspace);
        copy_columns(D{}, in[0], segment, d.kv.data() + all - segment, all, here.data(), segment);
        gemm(D{}, false, false, rows, w, w, S{1}, d.q.data(), w, cast<T>(q_.value).data(), w, S{0}, dx.data(), w);
        gemm(D{}, false, false, rows, w, 2 * w, S{1}, here.data(), 2 * w, cast<T>(kv_.value).data(), w, S{1}, dx.data(),
             w);
        return dx;
    }

    void add_gradients(const tensor<T, D>& x, const gradients& d, const pass_context& p) {
        if (!p.weight_gradient) return;
        const tensor<T, D> h = with_memory(x, p);
        const index_t w = width();
        const auto of = [&](const tensor<T, D>& in, const tensor<T, D>& dy, layer_parameter<T, D>& weight) {
            linear_gradients(D{}, in.size() / w, weight.shape[0], w, dy.data(), in.data(), weight.grad.data(),
                             static_cast<S*>(nullptr));
        };
        of(x, d.q, q_);
        of(h, d.kv, kv_);
        of(distances(d.r.extent(0)), cast<T>(d.r), r_);
        for_each(functors::add{}, u_.grad, d.u);
        for_each(functors::add{}, v_.grad, d.v);
    }

    config config_;
    layer_parameter<T, D> q_, kv_, r_, u_, v_;
    std::map<index_t, tensor<T, D>> distances_;  // by number of keys: of training, of evaluation
};

CAIRN_COMPILED_CLASS(relative_attention)

}  // namespace cairn
